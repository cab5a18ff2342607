"""The relations under which a bound holds."""

from skdpot.privacy.accounting import check_relation


def check_replaced(relation: str, public: str) -> None:
    """Raise unless neighbours differ in a record that is replaced, as what is public asks for."""
    check_relation(relation)
    if relation != "replace_one":
        raise ValueError(
            f"there is no sensitivity under {relation!r} where {public}: choose 'replace_one'."
        )


def doubled_if_replaced(bound: float, relation: str) -> float:
    """Return the bound for a record more or less, and twice that for one that is replaced."""
    check_relation(relation)
    return 2.0 * bound if relation == "replace_one" else bound
