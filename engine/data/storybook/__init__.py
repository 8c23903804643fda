"""The storybook: small stories of this project's own, written and read by one grammar."""

from engine.data.storybook.stories import Parsed, accepts, parse, write_stories

__all__ = ["Parsed", "accepts", "parse", "write_stories"]
