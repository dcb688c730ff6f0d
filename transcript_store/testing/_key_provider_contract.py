"""The contract of ``KeyProvider``, as numbered checks. The docstring of a check is the rule that an error prints."""

from __future__ import annotations

import base64
import secrets
import threading
from collections.abc import Callable

from transcript_store import KeyProvider
from transcript_store.testing._arguments import require_function

__all__ = ["check_key_provider"]

MakeProvider = Callable[[], KeyProvider]

_FOR_ADDRESSES = bytes.maketrans(b"+/", b"-_")
"""The other two letters of base64."""


def check_key_provider(make_provider: MakeProvider, make_another: MakeProvider | None = None) -> None:
    """Check a ``KeyProvider`` against its contract. It returns nothing if the provider keeps it.

    Args:
        make_provider: makes the provider of one and the same key at each call, as another process would.
        make_another: makes the provider of another key; None to leave out the rules that need one.

    Raises:
        TypeError: ``make_provider`` is not a function.
        AssertionError: a rule is broken. The message begins with the number of the rule, as in ``K3``.
    """
    require_function("make_provider", make_provider)
    for number, check in enumerate(CONTRACT, 1):
        try:
            check(make_provider, make_another)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise AssertionError(f"K{number}, {(check.__doc__ or '').strip()} {error!r}") from error


def _id(make: MakeProvider, _: MakeProvider | None) -> None:
    """The id is printable ASCII of 1 to 200 characters, and that of the same key is the same."""
    provider = make()
    named = provider.id
    assert isinstance(named, str)
    assert 0 < len(named) <= 200
    assert named.isascii()
    assert named.isprintable()
    assert named == provider.id == make().id


def _whole(make: MakeProvider, _: MakeProvider | None) -> None:
    """A wrapped key is unwrapped equal, with the same key in any object, also after other wraps, and repeatedly."""
    provider, kept = make(), []
    named = provider.id
    for data_key in (secrets.token_bytes(32), bytes(32), b"\xff" * 32, b"\n" * 32):
        wrapped = provider.wrap(data_key)
        assert isinstance(wrapped, bytes), f"wrap() gave {type(wrapped).__name__}"
        assert 0 < len(wrapped) <= 64 * 1024, f"wrap() gave {len(wrapped)} bytes"
        kept.append((data_key, wrapped))
    for data_key, wrapped in [*kept[::-1], *kept]:
        for one in (make(), provider):
            found = one.unwrap(wrapped)
            assert isinstance(found, bytes), f"unwrap() gave {type(found).__name__}"
            assert found == data_key, "unwrap() gave another data key"
    assert named == provider.id == make().id, "the id changed"


def _hidden(make: MakeProvider, _: MakeProvider | None) -> None:
    """Neither the wrapped key nor the provider's repr contains the data key: not raw, nor in hex or base64."""
    provider, data_key = make(), secrets.token_bytes(32)
    for seen in (provider.wrap(data_key), repr(provider).encode()):
        named = [form for form, spelled in _spellings(data_key) if spelled in seen or spelled in b"".join(seen.split())]
        assert not named, f"it contains the data key: {named[0]}"


def _spellings(data_key: bytes) -> list[tuple[str, bytes]]:
    """The spellings of a key in plaintext; for base64 the part that does not depend on the bytes before and after it."""
    found = [("as it is", data_key), ("in hex", data_key.hex().encode()), ("in hex", data_key.hex().upper().encode())]
    for before in range(3):
        begin, end = -(-before * 8 // 6), (before + len(data_key)) * 8 // 6
        text = base64.b64encode(bytes(before) + data_key)[begin:end]
        found += [("in base64", text), ("in base64", text.translate(_FOR_ADDRESSES))]
    return found


def _changed(make: MakeProvider, _: MakeProvider | None) -> None:
    """A changed, cut or extended wrapped key is refused with an error, and never unwrapped."""
    provider, data_key = make(), secrets.token_bytes(32)
    wrapped = provider.wrap(data_key)
    others = [
        wrapped[:k] + bytes([wrapped[k] ^ 1]) + wrapped[k + 1 :] for k in {0, len(wrapped) // 2, len(wrapped) - 1}
    ]
    for other in (*others, b"", wrapped[:-1], wrapped + b"\0", data_key):
        _refuses(provider, other)


def _another_key(make: MakeProvider, make_another: MakeProvider | None) -> None:
    """Another key has another id, and does not unwrap it."""
    if make_another is not None:
        other = make_another()
        assert other.id != make().id
        _refuses(other, make().wrap(secrets.token_bytes(32)))


def _threads(make: MakeProvider, _: MakeProvider | None) -> None:
    """Several threads may use one provider."""
    provider, failed = make(), []

    def work() -> None:
        try:
            for _ in range(5):
                data_key = secrets.token_bytes(32)
                assert provider.unwrap(provider.wrap(data_key)) == data_key
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def _refuses(provider: KeyProvider, wrapped: bytes) -> None:
    try:
        provider.unwrap(wrapped)
    except Exception:
        return
    raise AssertionError(f"{len(wrapped)} bytes were unwrapped that it did not wrap")


CONTRACT = (_id, _whole, _hidden, _changed, _another_key, _threads)
