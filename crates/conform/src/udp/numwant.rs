//! The number of peers that a client wants (BEP 15, "Announce": `num_want`).

use super::Udp;
use crate::case::Case;
use crate::rules::numwant;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "udp-numwant-default-gives-peers",
        "BEP 15, \"Announce\"",
        "A num_want of -1 stands for the default of the tracker, which is some peers.",
        |context| numwant::gives_peers::<Udp>(context, &[-1]),
    ),
    Case::should(
        "udp-numwant-negative-is-the-default",
        "practice: any negative number is treated as -1",
        "A num_want below -1 also gives some peers.",
        |context| numwant::gives_peers::<Udp>(context, &[i32::MIN, -2]),
    ),
    Case::must(
        "udp-numwant-huge-gives-peers",
        "practice: clients ask for hundreds, and take what they get",
        "A num_want beyond the cap of the tracker gives peers up to the cap, not an error.",
        |context| numwant::gives_peers::<Udp>(context, &[i32::MAX, 1000]),
    ),
    Case::should(
        "udp-numwant-0-gives-none",
        "practice: a client that only reports its state wants no peers",
        "A num_want of 0 gives no peers.",
        |context| numwant::gives_exactly::<Udp>(context, &[0]),
    ),
    Case::should(
        "udp-numwant-is-kept",
        "practice: one known tracker hands out 0 for 1 and 2 for 3",
        "A small num_want gives exactly that many peers where more are available.",
        |context| numwant::gives_exactly::<Udp>(context, &[1, 2, 3, 10]),
    ),
];
