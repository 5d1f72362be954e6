//! Inputs of the target `packet`: packets of honest frames, whole and damaged, and lists of frames
//! to put into packets.

use std::collections::BTreeMap;

/// Before octets that are taken apart.
const WALK: u8 = 0;
/// Before a list of frames.
const PLAN: u8 = 1;

/// Packets of `frames`, which are inputs of the target `wire`; and lists.
pub(crate) fn all(frames: &BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let request = &frames["request-latency"][..];
    let (data, notice) = (&frames["data-64"][..], &frames["failure-nack"][..]);
    let walk = |parts: &[&[u8]]| [&[WALK], &parts.concat()[..]].concat();
    let plan = |path: u16, each: [u8; 3], count: usize| {
        let ([p0, p1], list) = (path.to_be_bytes(), each.repeat(count));
        [&[PLAN, 1, p0, p1, 0x0d, 0x48, count as u8], &list[..]].concat()
    };
    [
        ("walk-nothing", walk(&[])),
        ("walk-one", walk(&[request])),
        ("walk-three", walk(&[request, data, notice])),
        ("walk-32", walk(&[request; 32])),
        ("walk-33", walk(&[notice; 33])),
        ("walk-cut", walk(&[request, &data[..data.len() - 1]])),
        ("walk-cut-before-length", walk(&[request, &data[..31]])),
        ("walk-octet-behind", walk(&[notice, &[2]])),
        ("walk-version-amid", walk(&[request, &frames["version-1"], request])),
        ("walk-type-amid", walk(&[request, &[2, 9], request])),
        ("walk-class-amid", walk(&[request, &frames["class-2"], request])),
        ("plan-one-way", plan(3_400, [0, 0, 63], 32)),
        ("plan-small-path", plan(200, [4, 0, 63], 20)),
        ("plan-large", plan(9_000, [0x40, 9, 99], 16)),
        ("plan-unpaid", plan(3_400, [0x30, 0, 47], 9)),
        ("plan-nothing", plan(3_400, [0x80, 0, 47], 32)),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}
