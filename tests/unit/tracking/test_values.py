from bertline.tracking.values import MAX_PARAM_CHARACTERS, batches, cut, flatten, without_text


def test_long_values_are_cut_to_the_limit_with_a_note() -> None:
    value = flatten({"key": "x" * 10_000})["key"]
    assert len(value) <= MAX_PARAM_CHARACTERS
    assert value.endswith("… (cut, 10000 characters)")


def test_a_value_of_exactly_the_limit_is_whole() -> None:
    assert cut("a" * 50, 50) == "a" * 50


def test_values_are_json_so_that_none_and_true_differ_from_words() -> None:
    assert flatten({}) == {}
    assert flatten({"a": None, "b": True, "c": "True", "d": [], "e": {}}) == {
        "a": "null",
        "b": "true",
        "c": "True",
        "d": "[]",
        "e": "{}",
    }


def test_the_users_sentences_are_left_out_where_text_must_stay_home() -> None:
    params = {"pretrain": {"seed": 1, "mask_predictions": {"sentences": ["my [MASK]"], "every_steps": 5}}}
    assert flatten(without_text(params)) == {"pretrain.seed": "1", "pretrain.mask_predictions.every_steps": "5"}
    assert "pretrain.mask_predictions.sentences" in flatten(params)


def test_batches_keep_order_and_lose_nothing() -> None:
    assert [list(batch) for batch in batches(list(range(7)), 3)] == [[0, 1, 2], [3, 4, 5], [6]]
