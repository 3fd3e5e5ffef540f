"""Put the events of a streamed reply together, for hosts with a client of their own.

In: a provider's stream events in order, as dicts or SDK objects.
Out: the whole reply, for `calls` of the provider's adapter; its text arrives piece by piece.
Never: complete a cut text. A stream that ends without a stop reason has the reason `incomplete`: none of its calls run.
"""

from pokayoke.core.messages.streams import CUT_STOP_REASON, AnthropicStream, ChatStream, ResponsesStream, Stream

__all__ = ["CUT_STOP_REASON", "AnthropicStream", "ChatStream", "ResponsesStream", "Stream"]
