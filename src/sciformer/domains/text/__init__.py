"""Text as characters, bytes, words or subwords."""

from ...recipe.field import Field

FIELD = Field(
    title="Text",
    tokens={"text": ".tokens:Text"},
    data={
        "conll": ".readers.tagged:Columns",
        "lines": ".readers.labelled:Lines",
        "parallel": ".readers.pairs:Parallel",
        "text": ".readers.running:TextFiles",
    },
    format={"tagged": ".conll:CONLL"},
    simulation={"copying_memory": ".simulate.recall:Recall", "pronouns": ".simulate.pronouns:Pronouns"},
    new={"text": ".new:TEXT"},
    importers=(".interop.huggingface:IMPORTER",),
    exporters=(".interop.export:EXPORTER",),
    renamed={"data.kind": {"columns": "conll", "recall": "copying_memory"}},
)
