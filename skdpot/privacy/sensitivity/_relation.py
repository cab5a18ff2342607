"""Neighbouring relations for which a bound holds."""

from skdpot.privacy.accounting import check_relation


def check_replaced(relation: str, public: str) -> None:
    """Raise unless neighbours differ in a replaced record, since some quantities are public."""
    check_relation(relation)
    if relation != "replace_one":
        raise ValueError(
            f"there is no sensitivity under {relation!r} where {public}: choose 'replace_one'."
        )


def doubled_if_replaced(bound: float, relation: str) -> float:
    """Return a bound for an added or removed record, and twice that for a replaced one."""
    check_relation(relation)
    return 2.0 * bound if relation == "replace_one" else bound
