//! Commands and completions: what passes between an application and its NIC (1RMA §4.4, §4.5,
//! Appendix B).
//!
//! Both travel as one [`Line`] of 64 octets. A command is exactly one cache line, the software
//! image of the paper's four 16-byte stores. What is decoded from a line that an application wrote
//! is untrusted: decoding accepts only defined values, and the NIC checks the rest.

use core::fmt;

use rma_shm::Line;

use crate::{
    addr::HostAddr,
    crypto::{DerivedRegionKey, RegionKey},
    limits::REGION_KEY_LEN,
    op::{ClassOfService, OpStatus, OpType, TransferType},
    region::RegionId,
};

/// The name of a command slot. Carried by the completion, so that software knows which of its
/// commands has completed: ops may complete in any order (§4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandSlotId(pub u16);

impl CommandSlotId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CommandSlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a READ or a WRITE transfers: bytes of one remote and one local region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// How many bytes: 1 to [`crate::limits::OP_SIZE_MAX`].
    pub op_size: u32,
    /// Where in the remote region, in bytes.
    pub remote_offset: u64,
    /// The local region that sinks a read's data, or that a write's data comes from.
    pub local_region: RegionId,
    /// Where in the local region, in bytes.
    pub local_offset: u64,
}

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOp {
    /// Read remote memory (§3.1).
    Read(Transfer),
    /// Write remote memory (§5.1).
    Write(Transfer),
    /// Install this K_r at the remote region (§5.2).
    Rekey(RegionKey),
}

impl CommandOp {
    /// The type of the op, which its key is bound to.
    #[must_use]
    pub const fn op_type(&self) -> OpType {
        match self {
            Self::Read(_) => OpType::Read,
            Self::Write(_) => OpType::Write,
            Self::Rekey(_) => OpType::Rekey,
        }
    }

    /// The op that is one part of a transfer.
    #[must_use]
    #[inline]
    pub const fn part(transfer_type: TransferType, transfer: Transfer) -> Self {
        match transfer_type {
            TransferType::Read => Self::Read(transfer),
            TransferType::Write => Self::Write(transfer),
        }
    }

    /// The bytes that the op moves, if they are a region's.
    #[must_use]
    #[inline]
    pub const fn transfer(&self) -> Option<&Transfer> {
        match self {
            Self::Read(transfer) | Self::Write(transfer) => Some(transfer),
            Self::Rekey(_) => None,
        }
    }

    /// How many bytes the op transfers, either way.
    #[must_use]
    #[inline]
    pub const fn op_size(&self) -> u32 {
        match self.transfer() {
            Some(transfer) => transfer.op_size,
            None => REGION_KEY_LEN as u32,
        }
    }

    /// Forgets the key that the op installs, if it is a Rekey.
    pub(crate) const fn forget_key(&mut self) {
        if let Self::Rekey(key) = self {
            *key = RegionKey::from_bytes([0; REGION_KEY_LEN]);
        }
    }
}

//= 1rma#4.4-command-self-contained
/// One op, with all that the NIC needs to run it: a NIC keeps no state per destination (§4.4).
///
/// The second local region of the paper, the one for completions, is the portal's completion ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The slot that the command is issued to.
    pub slot: CommandSlotId,
    /// With which class of service.
    pub class: ClassOfService,
    /// The host of the remote region.
    pub responder: HostAddr,
    /// The region at the responder that the op is on.
    pub remote_region: RegionId,
    /// K_d, bound to this host, this process and the op type.
    pub key: DerivedRegionKey,
    /// What to do.
    pub op: CommandOp,
}

impl Command {
    /// The command of a slot that has none.
    pub(crate) const NONE: Self = Self {
        slot: CommandSlotId(0),
        class: ClassOfService::Latency,
        responder: HostAddr::from_octets([0; 16]),
        remote_region: RegionId::from_bits(0),
        key: DerivedRegionKey::from_bytes([0; 16]),
        op: CommandOp::Read(Transfer {
            op_size: 0,
            remote_offset: 0,
            local_region: RegionId::from_bits(0),
            local_offset: 0,
        }),
    };

    /// The command as the line that goes into the portal's ring.
    #[must_use]
    #[inline]
    pub fn to_line(&self) -> Line {
        let [a, b] = halves(&self.responder.to_octets());
        let [k, l] = halves(self.key.expose());
        let (local_region, [x, y]) = match &self.op {
            CommandOp::Read(transfer) | CommandOp::Write(transfer) => {
                (transfer.local_region, [transfer.remote_offset, transfer.local_offset])
            }
            CommandOp::Rekey(key) => (RegionId::from_bits(0), halves(key.expose())),
        };
        Line([
            u64::from(self.slot.0)
                | (self.op.op_type() as u64) << 16
                | (self.class as u64) << 24
                | u64::from(self.op.op_size()) << 32,
            a,
            b,
            u64::from(self.remote_region.to_bits()) | u64::from(local_region.to_bits()) << 32,
            x,
            y,
            k,
            l,
        ])
    }

    /// Whether a line carries a K_r, which must not lie about.
    pub(crate) const fn is_secret(line: &Line) -> bool {
        match OpType::from_code((line.0[0] >> 16) as u8) {
            Some(op_type) => op_type.shape().is_secret,
            None => false,
        }
    }

    /// The command in a line that an application wrote.
    ///
    /// # Errors
    /// The slot that the line names, if any other field has a value that is not defined.
    #[inline]
    pub fn from_line(line: &Line) -> Result<Self, CommandSlotId> {
        let [head, a, b, regions, x, y, k, l] = line.0;
        let slot = CommandSlotId(head as u16);
        let transfer = Transfer {
            op_size: (head >> 32) as u32,
            remote_offset: x,
            local_region: RegionId::from_bits((regions >> 32) as u32),
            local_offset: y,
        };
        let op = match OpType::from_code((head >> 16) as u8).ok_or(slot)? {
            OpType::Read => CommandOp::Read(transfer),
            OpType::Write => CommandOp::Write(transfer),
            OpType::Rekey => CommandOp::Rekey(RegionKey::from_bytes(whole([x, y]))),
        };
        Ok(Self {
            slot,
            class: ClassOfService::from_code((head >> 24) as u8).ok_or(slot)?,
            responder: HostAddr::from_octets(whole([a, b])),
            remote_region: RegionId::from_bits(regions as u32),
            key: DerivedRegionKey::from_bytes(whole([k, l])),
            op,
        })
    }
}

/// How an op ended, and its two delay measures (§4.5).
//= 1rma#4.5-delay-measures
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The slot of the command that has completed. Free again once the portal has seen this.
    pub slot: CommandSlotId,
    /// How it ended.
    pub status: OpStatus,
    issue_delay_nanos: u64,
    total_delay_nanos: u64,
}

impl Completion {
    /// A completion with its delays in nanoseconds; `issue_delay` is at most `total_delay`.
    #[must_use]
    pub fn new(slot: CommandSlotId, status: OpStatus, issue_delay: u64, total_delay: u64) -> Self {
        Self {
            slot,
            status,
            issue_delay_nanos: issue_delay.min(total_delay),
            total_delay_nanos: total_delay,
        }
    }

    /// How long the command waited in the initiating NIC to enter service: local congestion (§4.5).
    /// Equal to `total_delay` for an op that never did.
    #[must_use]
    pub const fn issue_delay(&self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.issue_delay_nanos)
    }

    /// How long the op took in all, from its arrival in the NIC to its completion (§4.5).
    #[must_use]
    pub const fn total_delay(&self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.total_delay_nanos)
    }

    /// The network's and the remote NIC's share of the delay: the difference of the two (§6).
    //= 1rma#6-remote-delay
    #[must_use]
    pub const fn remote_delay(&self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.total_delay_nanos - self.issue_delay_nanos)
    }

    /// `issue_delay` and `total_delay` in nanoseconds, the first at most the second.
    pub(crate) const fn delays_nanos(&self) -> (u64, u64) {
        (self.issue_delay_nanos, self.total_delay_nanos)
    }

    /// The completion as the line that goes into the portal's completion ring.
    #[must_use]
    #[inline]
    pub const fn to_line(&self) -> Line {
        let head = self.slot.0 as u64 | (self.status as u64) << 16;
        Line([head, self.issue_delay_nanos, self.total_delay_nanos, 0, 0, 0, 0, 0])
    }

    /// The completion in a line of the completion ring; `None` if the line holds no defined status.
    #[must_use]
    #[inline]
    pub fn from_line(line: &Line) -> Option<Self> {
        let [head, issue_delay, total_delay, ..] = line.0;
        let status = OpStatus::from_code((head >> 16) as u8)?;
        Some(Self::new(CommandSlotId(head as u16), status, issue_delay, total_delay))
    }
}

fn halves(octets: &[u8; 16]) -> [u64; 2] {
    let bits = u128::from_le_bytes(*octets);
    [bits as u64, (bits >> 64) as u64]
}

fn whole([low, high]: [u64; 2]) -> [u8; 16] {
    (u128::from(low) | u128::from(high) << 64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(op: CommandOp) -> Command {
        Command {
            slot: CommandSlotId(0xfffe),
            class: ClassOfService::Throughput,
            responder: "2001:db8::9".parse().unwrap(),
            remote_region: RegionId::from_bits(0xdead_beef),
            key: DerivedRegionKey::from_bytes(core::array::from_fn(|i| i as u8)),
            op,
        }
    }

    fn ops() -> [CommandOp; 3] {
        let transfer = Transfer {
            op_size: 4096,
            remote_offset: u64::MAX - 3,
            local_region: RegionId::from_bits(7),
            local_offset: 1 << 50,
        };
        let key = RegionKey::from_bytes(core::array::from_fn(|i| 0xf0 - i as u8));
        [CommandOp::Read(transfer), CommandOp::Write(transfer), CommandOp::Rekey(key)]
    }

    //= 1rma#4.4-command-self-contained
    //= type=test
    #[test]
    fn a_command_round_trips_through_its_line() {
        for command in ops().map(command) {
            assert_eq!(Command::from_line(&command.to_line()), Ok(command));
            let carries_region_key = matches!(command.op, CommandOp::Rekey(_));
            assert_eq!(Command::is_secret(&command.to_line()), carries_region_key);
            let v4 = Command { responder: "192.0.2.1".parse().unwrap(), ..command };
            assert_eq!(Command::from_line(&v4.to_line()), Ok(v4));
        }
    }

    #[test]
    fn a_line_with_undefined_fields_still_names_its_slot() {
        let mut line = command(ops()[0]).to_line();
        line.0[0] |= 0xff << 16;
        assert_eq!(Command::from_line(&line), Err(CommandSlotId(0xfffe)));
        let mut line = command(ops()[0]).to_line();
        line.0[0] |= 0xff << 24;
        assert_eq!(Command::from_line(&line), Err(CommandSlotId(0xfffe)));
    }

    //= 1rma#6-remote-delay
    //= type=test
    #[test]
    fn a_completion_round_trips_and_its_delays_add_up() {
        let completion = Completion::new(CommandSlotId(3), OpStatus::Timeout, 40, 100);
        let read = Completion::from_line(&completion.to_line()).unwrap();
        assert_eq!(read, completion);
        assert_eq!(read.issue_delay() + read.remote_delay(), read.total_delay());
        assert_eq!(Completion::from_line(&Line([0xff << 16, 0, 0, 0, 0, 0, 0, 0])), None);
        let forged = Line([0, u64::MAX, 5, 0, 0, 0, 0, 0]);
        assert_eq!(Completion::from_line(&forged).unwrap().remote_delay().as_nanos(), 0);
    }
}
