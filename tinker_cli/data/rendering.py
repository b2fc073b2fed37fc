"""A renderer for data that may hold images: the cookbook's, with its image processor where needed.

The cookbook's dataset builders make renderers without one, so a conversation with an image could
not be trained. Knows names of renderers and models; knows no files of rows.
"""

from __future__ import annotations

from typing import Any

from tinker_cookbook.renderers import Renderer, get_renderer
from tinker_cookbook.tokenizer_utils import get_tokenizer

from tinker_cli.errors import UsageError

NEEDS_PROCESSOR = ("qwen3_vl",)  # prefixes of renderers that can't be made without one


def renderer_of(name: str, model_name: str, *, with_images: bool = False) -> Renderer:
    """The renderer `name` for a model; UsageError if its image processor can't be loaded."""
    tokenizer = get_tokenizer(model_name)
    if not with_images and not name.startswith(NEEDS_PROCESSOR):
        return get_renderer(name, tokenizer)
    from tinker_cookbook.image_processing_utils import get_image_processor

    try:
        processor: Any = get_image_processor(model_name)
    except (OSError, ValueError, ImportError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(
            f"the data has images, and the image processor of {model_name} can't be loaded: {first}"
        ) from None
    return get_renderer(name, tokenizer, image_processor=processor)


def has_images(messages: Any) -> bool:
    """True if any message has an image part."""
    return any(
        isinstance(part, dict) and part.get("type") == "image"
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
    )
