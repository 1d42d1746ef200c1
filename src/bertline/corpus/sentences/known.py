"""Words that are known before any text is read: abbreviations of several languages, and beginnings of sentences."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Before a name, a number or an explanation: the sentence goes on, whatever the case of the next word.
TITLES = _words(
    """
    sog inkl exkl beschl entsch subsec subsecs subpara subpart rn rdnr rz hs lit jur vorauss
    mr mrs ms messrs mx mme mlle mgr dr drs prof rev hon st ste sra srta fr amb gen col maj capt lt sgt cpl adm
    cmdr gov sen rep pres supt insp det atty fmr mt ft hrn dipl sig sigg sigra dott avv dña lic p.s attn vol
    vols pp fig figs eq eqs eqn eqns sec secs ch chap thm prop eds ref refs vs cf e.g i.e eg ie viz approx ca
    resp cit ibid esp incl al pl pub fed civ crim evid supp cir v vgl ggf evtl zzgl abs nr str bd hrsg z.b d.h
    u.a v.a i.d.r z.t exec treas bankr urt az gem fa bzgl inh mem educ s.o o.ä p.ex c.-à-d para paras subd subds
    cl sched pars subpar subpars subds cls regs arts ord cong admin arg concl anc circ bekl kl bgbl rgbl abl gvbl bstbl
    anl halbs buchst bl sachverst dép arr décr réf св им ул ред стр рис см напр акад проф г.г
    """
)
# Only before a number or a month: "No. 5", "Jan. 1", "p. 12", but "He said no. She left."
BEFORE_NUMBERS = _words(
    """
    no nos p par str art arts tab c stat reg app ex op n r § §§ ed s ct g jan feb mar apr jun jul aug sep sept
    oct nov dec janv févr avr juill juil déc jän febr mär okt dez abr ago dic eff
    mind max min anm ziff kap mon tue tues wed thu thur thurs fri sat sun ext tel mob ph
    """
)
MONTHS = _words(
    """
    Januar Februar März Mai Juni Juli Oktober Dezember Jänner January February March April May June July August
    September October November December Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Jän Febr Mär Okt Dez
    janvier février mars avril mai juin juillet août septembre octobre novembre décembre janv févr avr juill déc
    """
)
# May end a sentence: a frequent beginning of one after them ends it.
OPEN = _words(
    """
    etc inc ltd corp co cos bros dept univ assn assoc jr sr esq ph.d m.d b.a m.a ave blvd rd a.m p.m u.s u.k u.n
    e.u d.c u.s.c u.s.a u.s.s.r n.y l.a c.f.r f.3d f.2d f.supp s.ct l.ed usw u.s.w bzw ca cal mass penn tex fla
    ill conn ariz colo gmbh mio mrd tel min max std dist ex rel ann amend const mich minn wis wash okla tenn ga
    va md kan ky neb nev int'l nat'l dep't gov't ass'n comm'n
    """
)
STARTERS = _words(
    """
    The This These That Those There It Its In If For When While Where He She We They You His Her Their And But
    Or As At By On To Then Thus Hence However Otherwise Note See Each Every Any All With After Before Since
    Because Although Also Here Not No Use Used Default What Why How Who Which My Our Your Now So Yes Well Please
    Even Some Many Most Such I A An Is Are Was Der Die Das Ein Eine Es Er Sie Wir Ich Dies Diese Dieser Im Am
    Nach Bei Mit Auch Und Aber Doch Le La Les Il Elle Ils Nous Vous Je Un Une Ce Cette El Los Las En Y Pero O Os
    Uma
    """
)
# A number with a full stop is an ordinal between one of these and a word that begins no sentence ("der 2. Senat").
BEFORE_ORDINALS = _words(
    """
    der die das den dem des im vom zum zur beim ins v
    """
)
# "Sec. 12. Definitions" is one heading.
LABELS = _words(
    """
    § §§ sec. section art. article ch. chapter rule title part no. fig. figure table step abs. artikel
    """
)
