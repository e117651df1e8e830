"""The grammar of the ``.pipe`` language, as a resource: ``pipe.lark``."""
