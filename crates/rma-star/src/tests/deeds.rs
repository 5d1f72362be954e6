//! The deeds of two applications together, and how to tell that they are done.

use super::pair::{Pair, Wr};
use crate::{
    config::{Framing, StarConfigBuilder},
    verbs::{WcStatus, WqeOp},
};

pub(super) fn faithful() -> StarConfigBuilder {
    StarConfigBuilder { framing: Framing::Faithful, ..StarConfigBuilder::default() }
}

pub(super) fn fused() -> StarConfigBuilder {
    StarConfigBuilder::default()
}

/// Octets that differ by `seed`.
pub(super) fn pattern(len: u32, seed: u32) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ seed.wrapping_mul(7)) as u8).collect()
}

/// A deed of two applications together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    ZSend,
    FSend,
    ZRead,
    ZWrite,
    FRead,
    FWrite,
}

pub(super) const DEEDS: [Deed; 6] =
    [Deed::ZSend, Deed::FSend, Deed::ZRead, Deed::ZWrite, Deed::FRead, Deed::FWrite];

/// A deed that was begun: the slots at Z and at F, and where the bytes go.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) z_slot: Option<u32>,
    pub(super) f_slot: Option<u32>,
    pub(super) to_f: bool,
    pub(super) at: u64,
    pub(super) bytes: Vec<u8>,
    /// The completion of the RECV, if there is one.
    pub(super) received: Option<(u32, Option<u32>, bool)>,
}

/// Begins a deed of `len` octets at `at` of both memories; all its own.
pub(super) fn begin(
    pair: &mut Pair,
    deed: Deed,
    (at, len): (u64, u32),
    immediate: Option<u32>,
) -> Begun {
    let (z_mr, f_mr) = (pair.z.mr, pair.f.mr);
    let bytes = pattern(len, at as u32 + len);
    let to_f = matches!(deed, Deed::ZSend | Deed::ZWrite | Deed::FRead);
    let from = if to_f { &pair.z } else { &pair.f };
    from.fill(at, &bytes);
    let wr = Wr { here: at, len, there: at, ..Wr::default() };
    let with_imm = Wr { immediate, ..wr };
    let (mut z_slot, mut f_slot, mut received) = (None, None, None);
    let takes_recv = immediate.is_some();
    match deed {
        Deed::ZSend => {
            f_slot = Some(pair.f.post(WqeOp::Recv, Wr { len: len + 10, ..wr }));
            z_slot = Some(pair.z.post(WqeOp::Send, with_imm));
            received = Some((len, immediate, false));
        }
        Deed::FSend => {
            z_slot = Some(pair.z.post(WqeOp::Recv, Wr { len: len + 10, ..wr }));
            f_slot = Some(pair.f.post(WqeOp::Send, with_imm));
            received = Some((len, immediate, false));
        }
        Deed::ZRead => z_slot = Some(pair.z.post(WqeOp::Read, Wr { remote: Some(f_mr), ..wr })),
        Deed::FRead => f_slot = Some(pair.f.post(WqeOp::Read, Wr { remote: Some(z_mr), ..wr })),
        Deed::ZWrite => {
            if takes_recv {
                f_slot = Some(pair.f.post(WqeOp::Recv, Wr { len: 0, ..wr }));
                received = Some((len, immediate, true));
            }
            z_slot = Some(pair.z.post(WqeOp::Write, Wr { remote: Some(f_mr), ..with_imm }));
        }
        Deed::FWrite => {
            if takes_recv {
                z_slot = Some(pair.z.post(WqeOp::Recv, Wr { len: 0, ..wr }));
                received = Some((len, immediate, true));
            }
            f_slot = Some(pair.f.post(WqeOp::Write, Wr { remote: Some(z_mr), ..with_imm }));
        }
    }
    Begun { z_slot, f_slot, to_f, at, bytes, received }
}

/// The deed is done: both sides were told once, and the bytes are where they belong.
pub(super) fn check(pair: &Pair, begun: &Begun) {
    assert_eq!((&pair.f.told[..], &pair.z.told[..]), (&[][..], &[][..]), "the connection is there");
    let success = Some(WcStatus::Success);
    assert_eq!(begun.z_slot.and_then(|slot| pair.z.status(slot)), begun.z_slot.and(success));
    assert_eq!(begun.f_slot.and_then(|slot| pair.f.status(slot)), begun.f_slot.and(success));
    let there = if begun.to_f { &pair.f } else { &pair.z };
    assert_eq!(there.bytes(begun.at, begun.bytes.len()), begun.bytes, "{begun:?}");
    if let Some((len, immediate, is_of_write)) = begun.received {
        let slot = if begun.to_f { begun.f_slot } else { begun.z_slot };
        let ended = there.ended[&slot.unwrap()];
        assert_eq!((ended.1, ended.2, ended.3), (len, immediate, is_of_write), "{begun:?}");
    }
}
