//! The table of statuses that an op may end with, and the faults that explain each. What the table
//! does not allow is a bug.

use std::collections::BTreeMap;

use rma_xdp::{
    OpStatus, OpType,
    metrics::{Metrics, MetricsSource},
};

use super::faults::{Fault, Faults};

/// The request of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// All is in order.
    Good,
    /// It reaches outside the region.
    OutOfBounds,
    /// The key is another one.
    WrongKey,
    /// The key is right for this region and process, but for another type of op.
    OtherType,
    /// The key was right before the region was rekeyed.
    OldKey,
    /// The region does not exist.
    NoRegion,
    /// The region does not permit ops of this type.
    NotPermitted,
}

/// The circumstances of a run besides its faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances {
    /// The tables are so small that ops find them full.
    pub tight: bool,
    /// The region was rekeyed, or the server ended, while the op was in flight.
    pub key_gone: bool,
    /// By its own count, the client's NIC has shed no op for lack of window ([`stood_still`]).
    pub stood_still: bool,
}

/// The faults that may refuse an op which the responder would not.
pub const REFUSALS: [Fault; 5] =
    [Fault::Refuse, Fault::Corrupt, Fault::Forge, Fault::Reflect, Fault::Repack];

/// Whether an op may end so.
#[must_use]
pub fn allows(
    op_type: OpType,
    kind: Kind,
    status: OpStatus,
    faults: &Faults,
    circumstances: Circumstances,
) -> bool {
    match status {
        OpStatus::Ok => kind == Kind::Good,
        // Lost, late or damaged frames, or a machine that is busy with other things.
        OpStatus::Timeout => true,
        // By the responder; or in its name, by somebody who has seen the request; or by the
        // responder that got the request damaged, or a forged one in its likeness; or by the
        // initiator itself, to its own request that came back to it, if that refusal comes back
        // too.
        OpStatus::RemoteAuthenticationFailure => {
            matches!(kind, Kind::WrongKey | Kind::OtherType | Kind::OldKey | Kind::NoRegion)
                || circumstances.key_gone
                || faults.any(&REFUSALS)
        }
        OpStatus::RemoteOutOfBounds => kind == Kind::OutOfBounds,
        OpStatus::RemotePermissionDenied => kind == Kind::NotPermitted,
        // Authenticated by the responder. Its tables are large enough, unless they are small on
        // purpose; or unless mutations are in them whose data never comes.
        OpStatus::Nack => circumstances.tight || op_type != OpType::Read && faults.any(&Fault::ALL),
        // The NIC's own verdict: no fault of the wire fills its window. Others may need the
        // processor.
        OpStatus::DispatchTimeout => circumstances.tight || circumstances.stood_still,
        OpStatus::InvalidCommand => false,
        // No receive is posted.
        OpStatus::RemoteNotReady => {
            matches!(op_type, OpType::Send | OpType::WriteWithImm | OpType::Notify)
        }
    }
}

/// Whether each op that a host's NIC has shed had room in its window: then its engine did not run
/// for as long as ops may wait, which happens where threads are more than cores. What an attacker
/// does to the window cannot hide behind that.
#[must_use]
pub fn stood_still(host: &MetricsSource) -> bool {
    let Metrics { completions, nic, .. } = host.metrics();
    let shed = completions.iter().find(|(status, _)| *status == OpStatus::DispatchTimeout);
    shed.is_some_and(|&(_, shed)| shed <= nic.shed_with_room)
}

/// How many ops of each kind ended how.
#[derive(Clone, Debug, Default)]
pub struct Outcomes(BTreeMap<(Kind, u8), u64>);

impl Outcomes {
    /// Counts one.
    pub fn count(&mut self, kind: Kind, status: OpStatus) {
        *self.0.entry((kind, status as u8)).or_default() += 1;
    }

    /// How many ops of `kind` ended with `status`.
    #[must_use]
    pub fn of(&self, kind: Kind, status: OpStatus) -> u64 {
        self.0.get(&(kind, status as u8)).copied().unwrap_or(0)
    }
}

impl core::fmt::Display for Outcomes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (&(kind, status), count) in &self.0 {
            let status = OpStatus::from_code(status).expect("it was counted");
            write!(f, "{kind:?} {status} {count}, ")?;
        }
        Ok(())
    }
}
