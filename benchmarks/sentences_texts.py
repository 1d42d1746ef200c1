"""Sentences in the style of statutes, court decisions and encyclopedias, written for `sentences.py`; one a line."""

from __future__ import annotations

import random

LAW = """
Pub. L. 110-246, title I, Sec. 1001, amended 7 U.S.C. 8702.
See 10 U.S.C. Sec. 7730.
The motion is governed by Fed. R. Civ. P. 12(b)(6).
Plaintiff relies on Roe v. Harris, 128 Idaho 569, 917 P.2d 403 (1996).
The U.S. Army denied the claim on Jan. 5, 1990.
Under 42 U.S.C. § 1983, a plaintiff must show state action.
The Court affirmed in Smith v. Jones, 410 U.S. 113, 116 (1973).
(Pub. L. 91-190, Sec. 2, Jan. 1, 1970, 83 Stat. 852.)
Aug. 10, 1956, ch. 1041, 70A Stat. 467; Pub. L. 96-513, title V, Sec. 513(26), Dec. 12, 1980, 94 Stat. 2932.
This section is referred to in section 5 of this title.
Cf. Fed. R. Evid. 401.
No. 95-1234 was argued before Hon. R. Posner.
Amendments were made by Pub. L. 99-145, effective Nov. 8, 1985.
Acme Corp. v. Widget Co., Inc., 55 F.3d 1 (2d Cir. 1995), is not to the contrary.
Mr. Justice O'Connor, joined by J. Paul Stevens, dissented.
The statute (Cal. Civ. Code § 1714) says so.
Ill. Rev. Stat. ch. 38, par. 9-1 (1987), applies.
N.Y. Penal Law § 125.25 defines murder.
Defendants' Mem. of Law in Supp. of Mot. to Dismiss, at 5, concedes this.
See also H.R. Rep. No. 94-1487, p. 7 (1976).
The hearing was held at 9:30 a.m. on Feb. 3.
Exec. Order No. 12,866, 58 Fed. Reg. 51735, was cited.
Treas. Reg. § 1.61-1(a) defines gross income.
The Bankr. Ct. of the district held otherwise.
The Sec. of the Treasury shall prescribe rules.
It was remanded to the Dist. Ct. for trial.
""".strip().splitlines()

GERMAN = """
Nach § 433 Abs. 2 BGB ist der Käufer zur Zahlung verpflichtet.
Er kam z. B. am 3. Mai nach Berlin.
Das Urteil vom 12. Oktober 2005 ist rechtskräftig.
Vgl. BGH, Urt. v. 3. Juni 2010, Az. IX ZR 45/09.
Gem. Art. 3 Abs. 1 S. 1 GG sind alle Menschen gleich.
Dies gilt u. a. für die GmbH i. S. d. Gesetzes.
Der 2. Senat wies die Klage ab.
Im 19. Jahrhundert wurde die Kirche gebaut.
Dr. Müller wohnt in der Hauptstr. 5.
Es waren ca. 20 Personen anwesend, d. h. mehr als erwartet.
Am 1. Januar 1990 trat das Gesetz in Kraft.
Das Gericht hat die Klage bzgl. des Antrags Nr. 3 abgewiesen.
Die Beschwerde gem. § 304 StPO ist zulässig.
Am 8. April 1998 verstarb der Erblasser.
Er hat den Anspruch i. H. v. 500 Euro anerkannt.
Die Anm. zu Rn. 12 überzeugt nicht.
""".strip().splitlines()

ENCYCLOPEDIA = """
The U.S. Army moved north.
He studied under E.P. Thompson.
The village lies near Mt. Pilzhübel in Saxony.
In Roe v. Harris the court held otherwise.
St. Mary's Church dates from c. 1250.
J. R. R. Tolkien and C. S. Lewis met in Oxford.
The company, Smith & Sons Ltd. of London, failed.
Gen. George S. Patton Jr. commanded it.
It was released by A&M Records Inc. in 1975.
He was born ca. 1450 and died in 1501.
The river is approx. 30 km long.
Plants of the genus, e.g. Quercus robur, grow here.
The U.N. Security Council met on Oct. 24.
Sgt. York and Lt. Col. Mills were honoured.
""".strip().splitlines()


def paragraphs(lines: list[str], *, num: int, seed: int) -> list[list[str]]:
    """Return paragraphs of ten sentences in a random order."""
    generator = random.Random(seed)
    return [generator.sample(lines, 10) for _ in range(num)]
