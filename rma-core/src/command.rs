//! Commands and completions: what passes between an application and its NIC (1RMA §4.4, §4.5,
//! Appendix B).
//!
//! Both travel as one [`Line`] of 64 octets. A command is exactly one cache line, the software image of
//! the paper's four 16-byte stores. What is decoded from a line that an application wrote is untrusted:
//! decoding accepts only defined values, and the NIC checks the rest.

use core::fmt;

use rma_shm::Line;

use crate::{
    addr::HostAddr,
    crypto::DerivedRegionKey,
    op::{ClassOfService, OpStatus, OpType},
    region::RegionId,
};

/// The name of a command slot. Carried by the completion, so that software knows which of its commands
/// has completed: ops may complete in any order (§4.3).
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

//= 1rma#4.4-command-self-contained
/// One op, with all that the NIC needs to run it: a NIC keeps no state per destination (§4.4).
///
/// The second local region of the paper, the one for completions, is the portal's completion ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The slot that the command is issued to.
    pub slot: CommandSlotId,
    /// What to do.
    pub op_type: OpType,
    /// With which class of service.
    pub class: ClassOfService,
    /// How many bytes: 1 to [`crate::limits::OP_SIZE_MAX`].
    pub op_size: u32,
    /// The host of the remote region.
    pub responder: HostAddr,
    /// The remote region.
    pub remote_region: RegionId,
    /// Where in the remote region, in bytes.
    pub remote_offset: u64,
    /// The local region that sinks a read's data.
    pub local_region: RegionId,
    /// Where in the local region, in bytes.
    pub local_offset: u64,
    /// K_d, bound to this host, this process and the op type.
    pub key: DerivedRegionKey,
}

impl Command {
    /// The command of a slot that has none.
    pub(crate) const NONE: Self = Self {
        slot: CommandSlotId(0),
        op_type: OpType::Read,
        class: ClassOfService::Latency,
        op_size: 0,
        responder: HostAddr::from_octets([0; 16]),
        remote_region: RegionId::from_bits(0),
        remote_offset: 0,
        local_region: RegionId::from_bits(0),
        local_offset: 0,
        key: DerivedRegionKey::from_bytes([0; 16]),
    };

    /// The command as the line that goes into the portal's ring.
    #[must_use]
    pub fn to_line(&self) -> Line {
        let [a, b] = halves(&self.responder.to_octets());
        let [k, l] = halves(self.key.expose());
        Line([
            u64::from(self.slot.0)
                | (self.op_type as u64) << 16
                | (self.class as u64) << 24
                | u64::from(self.op_size) << 32,
            a,
            b,
            u64::from(self.remote_region.to_bits()) | u64::from(self.local_region.to_bits()) << 32,
            self.remote_offset,
            self.local_offset,
            k,
            l,
        ])
    }

    /// The command in a line that an application wrote.
    ///
    /// # Errors
    /// The slot that the line names, if any other field has a value that is not defined.
    pub fn from_line(line: &Line) -> Result<Self, CommandSlotId> {
        let [head, a, b, regions, remote_offset, local_offset, k, l] = line.0;
        let slot = CommandSlotId(head as u16);
        let op_type = OpType::from_code((head >> 16) as u8).ok_or(slot)?;
        let class = ClassOfService::from_code((head >> 24) as u8).ok_or(slot)?;
        Ok(Self {
            slot,
            op_type,
            class,
            op_size: (head >> 32) as u32,
            responder: HostAddr::from_octets(whole([a, b])),
            remote_region: RegionId::from_bits(regions as u32),
            remote_offset,
            local_region: RegionId::from_bits((regions >> 32) as u32),
            local_offset,
            key: DerivedRegionKey::from_bytes(whole([k, l])),
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

    /// How long the command waited in the initiating NIC to enter service: local congestion (§4.5). Equal
    /// to `total_delay` for an op that never did.
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
    #[must_use]
    pub const fn remote_delay(&self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.total_delay_nanos - self.issue_delay_nanos)
    }

    /// The completion as the line that goes into the portal's completion ring.
    #[must_use]
    pub const fn to_line(&self) -> Line {
        let head = self.slot.0 as u64 | (self.status as u64) << 16;
        Line([head, self.issue_delay_nanos, self.total_delay_nanos, 0, 0, 0, 0, 0])
    }

    /// The completion in a line of the completion ring; `None` if the line holds no defined status.
    #[must_use]
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

    fn command() -> Command {
        Command {
            slot: CommandSlotId(0xfffe),
            op_type: OpType::Read,
            class: ClassOfService::Throughput,
            op_size: 4096,
            responder: "2001:db8::9".parse().unwrap(),
            remote_region: RegionId::from_bits(0xdead_beef),
            remote_offset: u64::MAX - 3,
            local_region: RegionId::from_bits(7),
            local_offset: 1 << 50,
            key: DerivedRegionKey::from_bytes(core::array::from_fn(|i| i as u8)),
        }
    }

    //= 1rma#4.4-command-self-contained
    //= type=test
    #[test]
    fn a_command_round_trips_through_its_line() {
        assert_eq!(Command::from_line(&command().to_line()), Ok(command()));
        let v4 = Command { responder: "192.0.2.1".parse().unwrap(), ..command() };
        assert_eq!(Command::from_line(&v4.to_line()), Ok(v4));
    }

    #[test]
    fn a_line_with_undefined_fields_still_names_its_slot() {
        let mut line = command().to_line();
        line.0[0] |= 0xff << 16;
        assert_eq!(Command::from_line(&line), Err(CommandSlotId(0xfffe)));
        let mut line = command().to_line();
        line.0[0] |= 0xff << 24;
        assert_eq!(Command::from_line(&line), Err(CommandSlotId(0xfffe)));
    }

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
