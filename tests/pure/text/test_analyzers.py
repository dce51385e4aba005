"""Analyzers: what each tokenizer and filter does, and what is refused."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
import zlib
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.ids import FieldID
from elanus.core.schema import DataType, FieldSchema
from elanus.text import Analyzer, TermRows, analyzer_from, analyzers_of, check_text_field, term_ids, term_rows
from elanus.text import analyzer as analyzer_module
from elanus.text import terms as terms_module
from elanus.text.analyzer import analyzer_of


def of(**params: object) -> Analyzer:
    return analyzer_from(json.dumps(params))


def jieba(**options: object) -> Analyzer:
    return of(tokenizer={"type": "jieba", **options})


def filtered(*filters: object, tokenizer: object = "whitespace") -> Analyzer:
    return of(tokenizer=tokenizer, filter=list(filters))


def pinyin(**options: object) -> Analyzer:
    return filtered({"type": "pinyin", **options})


def synonyms(**options: object) -> Analyzer:
    rules = ["fast, quick => speedy", "happy, joyful"]
    return filtered({"type": "synonym", "synonyms": rules, **options})


@pytest.mark.parametrize(
    ("analyzer", "text", "words"),
    [
        (analyzer_from(""), "Hello, WORLD! foo_bar it's", ["hello", "world", "foo", "bar", "it", "s"]),
        (analyzer_from("{}"), "Ünïcode Straße 9", ["ünïcode", "straße", "9"]),
        (of(type="standard", stop_words=["of", "_english_"]), "The dog of War", ["dog", "war"]),
        (of(type="english"), "The foxes are running", ["fox", "run"]),
        (of(type="english", stop_words=["run"]), "foxes running", ["fox"]),
        (of(type="chinese"), "我来到清华大学, ok!", ["我", "来到", "清华", "华大", "大学", "清华大学", "ok"]),
        (of(tokenizer="standard"), "Hello World", ["Hello", "World"]),
        (of(tokenizer={"type": "jieba", "mode": "exact"}), "清华大学", ["清华大学"]),
        (of(tokenizer={"type": "lindera", "dict_kind": "ipadic"}), "東京の 😀駅", ["東京", "の", "😀", "駅"]),
        (of(tokenizer={"type": "lindera", "dict_kind": "ipadic",
                       "filter": [{"kind": "japanese_stop_tags", "tags": ["助詞,連体化"]}]}),
         "東京の駅", ["東京", "駅"]),
        (of(tokenizer="icu", filter=["removepunct"]), "Это 😀 да!", ["Это", "😀", "да"]),
        (of(tokenizer="jieba", filter=["pinyin"]), "中文测试", ["中文", "zhong", "wen", "测试", "ce", "shi"]),
        (pinyin(keep_original=False, keep_full_pinyin=False, keep_joined_full_pinyin=True),
         "中文 Milvus 女 T恤", ["zhongwen", "Milvus", "nv", "xu"]),
        (pinyin(keep_full_pinyin=False, keep_separate_first_letter=True), "中文", ["中文", "zw"]),
        (pinyin(keep_joined_full_pinyin=True, keep_separate_first_letter=True), "中文",
         ["中文", "zhong", "wen", "zhongwen", "zw"]),
        (jieba(dict=["_default_", "结巴分词器", ""]), "结巴分词器测试",
         ["结巴", "分词", "分词器", "结巴分词器", "测试"]),
        (jieba(dict=["结巴分词器"], mode="exact", hmm=False), "结巴分词器测试", ["结巴分词器", "测", "试"]),
        (jieba(dict=[], other=1, hmm=False), "测试", ["测", "试"]),
        (filtered("lowercase"), "A-B  c\tD", ["a-b", "c", "d"]),
        (filtered("asciifolding"), "Café Ångström", ["Cafe", "Angstrom"]),
        (filtered("alphanumonly"), "abc a-b 1a é", ["abc", "1a"]),
        (filtered("cnalphanumonly"), "中文 abc a-b 文c", ["中文", "abc", "文c"]),
        (filtered("cncharonly"), "中文 abc 文c", ["中文"]),
        (filtered("removepunct"), "a , ... b! don't c", ["a", "c"]),
        (filtered({"type": "stop", "stop_words": ["_english_", "dog"]}), "the dog ran", ["ran"]),
        (filtered({"type": "length", "max": 3}), "ab abc abcd éé", ["ab", "abc"]),
        (filtered({"type": "stemmer", "language": "German"}), "läuft katzen", ["lauft", "katz"]),
        (filtered({"type": "decompounder", "word_list": ["dampf", "schiff"]}), "dampfschiff see",
         ["dampf", "schiff", "see"]),
        (filtered({"type": "regex", "expr": "^a"}), "ab ba ac", ["ab", "ac"]),
        (filtered("lowercase", {"type": "stop", "stop_words": ["a"]}), "A b", ["b"]),
        (of(type="arabic"), "كِتَابٌ من عـــربي ١٢٣ ميلفوس", ["كتاب", "عرب", "123", "ميلفوس"]),
        (of(type="arabic", stop_words=["كتاب"]), "كِتَابٌ عـــربي", ["عرب"]),
        (filtered("arabic_normalization"), "آدم أحمد إسلام مدرسة كبرى ـَ",
         ["ادم", "احمد", "اسلام", "مدرسه", "كبري"]),
        (filtered("decimaldigit"), "a ١٢٣ ๑๒๓ १२३ １２３ x²", ["a", "123", "123", "123", "123", "x²"]),
        (of(type="thai"), "ฉันรักการค้นหาข้อความใน Milvus ๑๒๓",
         ["ฉัน", "รัก", "ค้นหา", "ข้อความ", "milvus", "123"]),
        (of(tokenizer="thai"), "สวัสดี! ทดสอบ, ระบบ Milvus ๑๒๓", ["สวัสดี", "ทดสอบ", "ระบบ", "Milvus", "๑๒๓"]),
        (of(tokenizer={"type": "thai"}, filter=["lowercase"]), "ระบบ, Milvus", ["ระบบ", "milvus"]),
        (synonyms(), "fast joyful dog", ["fast", "speedy", "joyful", "happy", "dog"]),
        (synonyms(expand=True), "happy quick", ["happy", "joyful", "quick", "speedy"]),
        (synonyms(expand=False), "fast joyful happy dog", ["speedy", "happy", "happy", "dog"]),
    ],
)  # fmt: skip
def test_words(analyzer: Analyzer, text: str, words: list[str]) -> None:
    assert analyzer.words(text) == words
    assert [token.text for token in analyzer.tokens(text)] == words
    tokens = analyzer.tokens_of([None, text, ""])
    assert [tokens.vocabulary[code].as_py() for code in tokens.codes.tolist()] == words
    assert set(tokens.rows.tolist()) <= {1}
    assert tokens.positions.tolist() == [token.position for token in analyzer.tokens(text)]


def test_places_are_bytes_and_positions_count_dropped_tokens() -> None:
    tokens = of(type="english").tokens("Thé running of foxes")
    assert [(t.text, t.start, t.end, t.position) for t in tokens] == [
        ("thé", 0, 4, 0),
        ("run", 5, 12, 1),
        ("fox", 16, 21, 3),
    ]


@given(st.lists(st.text(alphabet="ab éß中_ ,A", max_size=12), max_size=8))
def test_a_column_is_analyzed_like_its_texts(texts: list[str]) -> None:
    analyzer = of(type="standard", stop_words=["a"])
    tokens = analyzer.tokens_of(texts)
    for row, text in enumerate(texts):
        own = tokens.codes[tokens.rows == row]
        assert [tokens.vocabulary[code].as_py() for code in own.tolist()] == analyzer.words(text)


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_texts_are_analyzed_in_pieces(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [None, "the dog", "", *(f"dog {n} fox" for n in range(9))]
    analyzer = of(type="english")
    whole, rows = analyzer.tokens_of(texts), term_rows(analyzer.tokens_of(texts), len(texts))
    for module in (analyzer_module, terms_module):
        monkeypatch.setattr(module, "CHUNK_TEXTS", chunk)
    parts = analyzer.tokens_of(texts)
    assert parts.vocabulary.equals(whole.vocabulary)
    for name in ("codes", "rows", "positions"):
        assert getattr(parts, name).dtype == np.int32
        assert getattr(parts, name).tolist() == getattr(whole, name).tolist()
    english = field(enable_analyzer=True, analyzer_params={"type": "english"})
    made = TermRows(english, pa.array(texts), known=rows[np.arange(5)])
    assert made.to_column().equals(rows.to_column())
    assert len(TermRows(english, pa.array([], pa.string())).rows) == 0


@pytest.mark.parametrize(
    ("params", "error", "what"),
    [
        ('{"type": "klingon"}', InvalidParameter, "unknown build-in analyzer type: klingon"),
        ('{"type": 3}', InvalidParameter, "analyzer type should be string"),
        ('{"filter": []}', InvalidParameter, "tokenizer name or type must be set"),
        ('{"tokenizer": "klingon"}', InvalidParameter, "unsupported tokenizer: klingon"),
        ('{"tokenizer": "char_group"}', NotSupported, "char_group is not supported"),
        ('{"tokenizer": "language_identifier"}', InvalidParameter, "analyzers must be set"),
        ('{"tokenizer": {"type": "language_identifier", "analyzers": []}}', InvalidParameter,
         "analyzers must be dict"),
        ('{"tokenizer": {"type": "language_identifier", "analyzers": {"English": "english"}}}',
         InvalidParameter, 'sub analyzer "English" params must be dict'),
        ('{"tokenizer": {"type": "language_identifier", "analyzers": {"English": {}}}}',
         InvalidParameter, "default sub analyzer for language identifier analyzer must be set"),
        ('{"tokenizer": {"type": "language_identifier", "analyzers": {"default": {}}, "identifier": "x"}}',
         InvalidParameter, "unknown identifier name: x"),
        ('{"tokenizer": {"type": "language_identifier", "analyzers": {"default": {}}, "mapping": {"a": 1}}}',
         InvalidParameter, "mapping of a must be an analyzer"),
        ('{"tokenizer": {"type": "language_identifier", "analyzers": {"default": {}}, "other": 1}}',
         InvalidParameter, "unknown option other of tokenizer language_identifier"),
        ('{"tokenizer": {"type": "lindera", "dict_kind": "ko-dic"}}', NotSupported, "dictionary 'ko-dic'"),
        ('{"tokenizer": {"type": "lindera", "dict_kind": "ipadic", "filter": [{"kind": "x"}]}}',
         InvalidParameter, "lindera refuses its filter"),
        ('{"tokenizer": "standard", "other": 1}', InvalidParameter, "unknown analyzer option key: other"),
        ('{"tokenizer": "standard", "filter": "x"}', InvalidParameter, "filter params should be array"),
        ('{"tokenizer": "standard", "filter": ["x"]}', InvalidParameter, "filter not found :x"),
        ('{"tokenizer": "standard", "filter": [{"type": "x"}]}', InvalidParameter, "filter not found :x"),
        ('{"tokenizer": "standard", "filter": ["stop"]}', InvalidParameter, "filter stop has parameters"),
        ('{"tokenizer": "standard", "filter": [{"type": "stop"}]}', InvalidParameter, "needs its parameter"),
        ('{"tokenizer": "standard", "filter": [{"type": "stop", "stop_words": "a"}]}', InvalidParameter,
         "stop_words should be a list of strings"),
        ('{"tokenizer": "standard", "filter": [{"type": "stop", "stop_words": ["_klingon_"]}]}',
         InvalidParameter, "_klingon_: Unsupported language"),
        ('{"tokenizer": "standard", "filter": [{"type": "stemmer", "language": "klingon"}]}',
         InvalidParameter, "stemmer: Unsupported language"),
        ('{"tokenizer": "standard", "filter": [{"type": "regex", "expr": "("}]}',
         InvalidParameter, "no pattern"),
        ('{"tokenizer": "standard", "filter": [{"type": "length", "max": -1}]}',
         InvalidParameter, "a number of bytes"),
        ('{"tokenizer": {"type": "jieba", "mode": "x"}}', InvalidParameter, "jieba mode 'x' is unknown"),
        ('{"tokenizer": {"type": "jieba", "hmm": 1}}', InvalidParameter, "hmm should be true or false"),
        ('{"tokenizer": {"type": "jieba", "dict": [1]}}', InvalidParameter, "should be a list of strings"),
        ('{"tokenizer": {"type": "jieba", "dict": null}}', InvalidParameter, "should be a list of strings"),
        ('{"tokenizer": {"type": "jieba", "dict": ["_extend_default_"]}}', NotSupported, "_extend_default_"),
        ('{"tokenizer": {"type": "jieba", "extra_dict_file": {}}}', NotSupported, "put the words into dict"),
        ('{"tokenizer": {"type": "thai", "x": 1}}', InvalidParameter, "unknown option x of tokenizer thai"),
        ('{"tokenizer": "standard", "filter": [{"type": "stop", "stop_words_file": {}}]}', NotSupported,
         "put the words into stop_words"),
        ('{"tokenizer": "standard", "filter": ["synonym"]}', InvalidParameter,
         "filter synonym has parameters"),
        ('{"tokenizer": "standard", "filter": [{"type": "synonym"}]}', InvalidParameter,
         "needs its parameter"),
        ('{"tokenizer": "standard", "filter": [{"type": "synonym", "synonyms": "a, b"}]}', InvalidParameter,
         "should be a list of strings"),
        ('{"tokenizer": "standard", "filter": [{"type": "synonym", "synonyms": ["a =>"]}]}', InvalidParameter,
         "needs words on both sides"),
        (r'{"tokenizer": "standard", "filter": [{"type": "synonym", "synonyms": ["a, \ud800"]}]}',
         InvalidParameter, "analyzer params should be JSON"),
        (r'{"tokenizer": "standard", "filter": [{"type": "regex", "expr": "\udfff"}]}', InvalidParameter,
         "analyzer params should be JSON"),
        ('{"tokenizer": "standard", "filter": [{"type": "synonym", "synonyms": [" ,"]}]}', InvalidParameter,
         "has no words"),
        ('{"tokenizer": "standard", "filter": [{"type": "synonym", "synonyms": [], "expand": 1}]}',
         InvalidParameter, "should be true or false"),
        ('{"tokenizer": "standard", "filter": [{"type": "pinyin", "keep_original": "yes"}]}',
         InvalidParameter, "keep_original of filter pinyin should be true or false"),
        ('{"tokenizer": "standard", "filter": [{"type": "pinyin", "lowercase": true}]}',
         InvalidParameter, "unknown option lowercase of filter pinyin"),
        ("[1]", InvalidParameter, "should be a json map"),
        ("{", InvalidParameter, "should be JSON"),
    ],
)  # fmt: skip
def test_refused_parameters(params: str, error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        analyzer_from(params)


@pytest.mark.parametrize(
    ("module", "tokenizer", "extra"),
    [
        ("rjieba", '{"type": "jieba", "hmm": false}', "chinese"),
        ("lindera", '{"type": "lindera", "dict_kind": "ipadic", "filter": []}', "japanese"),
        ("icu4py.breakers", '{"type": "icu"}', "icu"),
        ("whatlang", '{"type": "language_identifier", "analyzers": {"default": {}}}', "languages"),
        ("lingua", '{"type": "language_identifier", "analyzers": {"default": {}}, "identifier": "lingua"}',
         "lingua"),
    ],
)  # fmt: skip
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    module: str, tokenizer: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotSupported, match=rf"pip install 'elanus\[{extra}\]'"):
        analyzer_from(f'{{"tokenizer": {tokenizer}}}')


def test_filters_of_synonyms_may_not_multiply_words_without_bound() -> None:
    rule = {"type": "synonym", "synonyms": ["a, b"]}
    assert len(filtered(*[rule] * 4).words("a")) == 2**4
    with pytest.raises(
        InvalidParameter, match="may turn one word into up to 14348907 words, more than 10000"
    ):
        filtered(*[rule] * 15)


def test_few_of_the_analyzers_that_clients_describe_are_kept() -> None:
    made = [weakref.ref(filtered({"type": "length", "max": longest})) for longest in range(100, 130)]
    gc.collect()
    assert 1 <= sum(one() is not None for one in made) <= 8


def test_a_large_group_of_synonyms_is_kept_once() -> None:
    words = [f"w{number}" for number in range(9_000)]
    analyzer = filtered({"type": "synonym", "synonyms": [", ".join(words)]})
    assert analyzer.words("w7") == ["w7", *words[:7], *words[8:]]


def test_the_filter_pinyin_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypinyin", None)
    with pytest.raises(NotSupported, match=r"filter pinyin needs .* pip install 'elanus\[chinese\]'"):
        filtered("pinyin")


class FakeWhatlang:
    """Knows two languages by their script, surely enough for a text of several words."""

    @staticmethod
    def detect(text: str) -> SimpleNamespace:
        language = "cmn" if ord(text[0]) > 0x3000 else "eng" if "the" in text.lower() else ""
        if not language:
            raise ValueError("Language could not be detected")
        return SimpleNamespace(lang=language, confidence=min(1.0, len(text) / 20))


class FakeLingua:
    class LanguageDetectorBuilder:
        @staticmethod
        def from_all_languages() -> SimpleNamespace:
            names = {"the": SimpleNamespace(name="ENGLISH"), "le": SimpleNamespace(name="FRENCH")}
            detector = SimpleNamespace(detect_language_of=lambda text: names.get(text.split()[0].lower()))
            return SimpleNamespace(build=lambda: detector)


OF_LANGUAGES = {
    "default": {"tokenizer": "whitespace"},
    "English": {"type": "english"},
    "own": {"tokenizer": "standard", "filter": ["lowercase"]},
}


@pytest.mark.parametrize(
    ("identifier", "text", "words"),
    [
        ("whatlang", "The foxes ran!", ["fox", "ran"]),
        ("whatlang", "Foxes ran!", ["Foxes", "ran!"]),
        ("whatlang", "机器 ABC", ["机器", "abc"]),
        ("whatlang", "   ", []),
        ({"type": "whatlang", "confidence": 0.9}, "The foxes ran!", ["The", "foxes", "ran!"]),
        ("lingua", "The foxes ran!", ["fox", "ran"]),
        ("lingua", "Le Café!", ["le", "café"]),
        ("lingua", "Foxes ran!", ["Foxes", "ran!"]),
    ],
)
def test_texts_are_analyzed_by_their_language(
    identifier: object, text: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "whatlang", FakeWhatlang)
    monkeypatch.setitem(sys.modules, "lingua", FakeLingua)
    mapping = {"Mandarin": "own", "French": "own"}
    params = {"analyzers": OF_LANGUAGES, "identifier": identifier, "mapping": mapping}
    analyzer = analyzer_of({"tokenizer": {"type": "language_identifier", **params}})
    assert analyzer.words(text) == words
    tokens = analyzer.tokens(text)
    assert [token.text for token in tokens] == words
    for token in tokens:
        cut = text.encode()[token.start : token.end].decode()
        assert cut.lower().startswith(token.text.lower())
    assert analyzer.tokens_of([None, text]).vocabulary.to_pylist() == list(dict.fromkeys(words))


def test_terms_are_the_references_hashes() -> None:
    words = ["milvus", "中文", "x" * 300]
    assert term_ids(pa.array(words)).tolist() == [zlib.crc32(word.encode()[:100]) for word in words]
    assert len(set(term_ids(pa.array(["x" * 100, "x" * 200])).tolist())) == 1
    rows = term_rows(analyzer_from("").tokens_of(["b a b", "", "c"]), 3)
    assert rows.lengths.tolist() == [2, 0, 1]
    assert sorted(rows.values[:2].tolist()) == [1.0, 2.0]
    assert np.all(np.diff(rows.indices[:2].astype(np.int64)) > 0)


def test_few_distinct_words_share_a_term() -> None:
    words = pa.array([f"word{n}" for n in range(100_000)])
    assert len(words) - len(np.unique(term_ids(words))) <= 5


def field(**params: object) -> FieldSchema:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in params.items()}
    return FieldSchema(FieldID(101), "text", DataType.VARCHAR, max_length=9, params=texts)


ON = {"enable_analyzer": True}
SEVERAL = {
    "analyzers": {"english": {"type": "english"}, "default": {"tokenizer": "whitespace"}},
    "by_field": "language",
    "alias": {"en": "english"},
}


def test_several_analyzers_are_chosen_row_by_row() -> None:
    analyzers = analyzers_of(field(enable_analyzer=True, multi_analyzer_params=SEVERAL))
    texts = ["Foxes run", "Foxes run", None, "Foxes"]
    tokens = analyzers.tokens_of(texts, ["en", "klingon", "english", None])
    words = tokens.vocabulary.to_pylist()
    found = [(row, words[code]) for row, code in zip(tokens.rows, tokens.codes, strict=True)]
    assert found == [(0, "fox"), (0, "run"), (1, "Foxes"), (1, "run"), (3, "Foxes")]
    assert analyzers.named("en") is analyzers.named("english") is not analyzers.named("other")


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"enable_match": True}, "is set to enable match or bm25 function but not enable analyzer"),
        ({"enable_analyzer": "maybe"}, "should be true or false, but got maybe"),
        ({"enable_analyzer": True, "analyzer_params": {"type": "x"}}, "unknown build-in analyzer type"),
        ({**ON, "analyzer_params": {}, "multi_analyzer_params": SEVERAL}, "not both"),
        ({**ON, "multi_analyzer_params": {}}, "needs analyzers"),
        ({**ON, "multi_analyzer_params": {**SEVERAL, "analyzers": {}}}, "must have default"),
        ({**ON, "multi_analyzer_params": {**SEVERAL, "by_field": None}}, "required by_field"),
        ({**ON, "multi_analyzer_params": {**SEVERAL, "alias": {"a": "b"}}}, "alias"),
        ({**ON, "multi_analyzer_params": {**SEVERAL, "by_field": "x"}}, "field x not exist"),
        ({**ON, "multi_analyzer_params": {**SEVERAL, "by_field": "id"}}, "a VarChar field"),
        ({**ON, "enable_match": True, "multi_analyzer_params": SEVERAL}, "enable match"),
    ],
)
def test_refused_fields(params: dict[str, object], what: str) -> None:
    others = {
        "language": FieldSchema(FieldID(102), "language", DataType.VARCHAR, max_length=9),
        "id": FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
    }
    with pytest.raises(InvalidParameter, match=what):
        check_text_field(field(**params), others)


@pytest.mark.slow
def test_a_server_without_text_fields_loads_no_library() -> None:
    program = (
        "import sys, elanus.proxy.wire.families, elanus.querynode.node, elanus.pipeline.range_files\n"
        "from elanus.text import analyzer_from\n"
        "analyzer_from('').words('plain words')\n"
        "assert not {'tantivy', 'rjieba'} & set(sys.modules), 'loaded'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_pattern_takes_time_in_proportion_to_the_word() -> None:
    analyzer = analyzer_from(
        json.dumps({"tokenizer": "whitespace", "filter": [{"type": "regex", "expr": "^(a+)+$"}]})
    )
    words = ["a" * 40 + "b", "a" * 40]
    assert [token.text for token in analyzer.tokens(" ".join(words))] == words[1:]
