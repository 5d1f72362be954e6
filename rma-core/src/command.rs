//! Commands and completions: what passes between an application and its NIC (1RMA §4.4, §4.5,
//! Appendix B).
//!
//! Both travel as one [`Line`] of 64 octets. A command is exactly one cache line, the software
//! image of the paper's four 16-byte stores; that of a recorded op (not in the paper) has a second
//! one, which an engine never sees without the first, nor the first without it. What is decoded
//! from lines that an application wrote is untrusted: decoding accepts only defined values, and the
//! NIC checks the rest.

mod completion;
mod lines;

use core::fmt;

use rma_shm::Line;

use crate::{
    addr::HostAddr,
    crypto::{DerivedRegionKey, RegionKey},
    limits::{OP_SIZE_MAX, REGION_KEY_LEN, WORD_LEN, are_words},
    op::{ClassOfService, Moves, OpType, TransferType},
    outcome::{Done, OpName},
    region::RegionId,
};
pub use completion::Completion;
pub(crate) use completion::Ending;

/// The name of a command slot. Carried by the completion, so that software knows which of its
/// commands has completed: ops may complete in any order (§4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandSlotId(pub u16);

impl fmt::Display for CommandSlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The bytes that a READ or a WRITE transfers: bytes of one remote and one local region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// How many bytes: 1 to [`crate::limits::OP_SIZE_MAX`].
    pub op_size: u32,
    /// The offset in the remote region, in bytes.
    pub remote_offset: u64,
    /// The local region that sinks a read's data, or that a write's data comes from.
    pub local_region: RegionId,
    /// The offset in the local region, in bytes.
    pub local_offset: u64,
}

/// An op that its target records (not in the paper): all of it happens or nothing, but for the
/// bytes of a WRITE_WITH_IMM that is not ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedOp {
    /// Write remote memory, the last word last. Remote offset and size are multiples of
    /// [`crate::limits::WORD_LEN`].
    OrderedWrite(Transfer),
    /// Send a message to a receive queue, which is the remote region; the remote offset is 0.
    Send {
        /// The place and length of the message: 1 to [`crate::limits::OP_SIZE_MAX`].
        message: Transfer,
        /// The immediate of its event.
        immediate: u64,
    },
    /// Write remote memory, and make an event in the queue that the remote region names.
    WriteWithImm {
        /// The bytes to write.
        transfer: Transfer,
        /// The immediate of the event.
        immediate: u64,
        /// Whether the bytes land as those of an ordered WRITE.
        ordered: bool,
    },
    /// Make an event in a receive queue, which is the remote region.
    Notify {
        /// The immediate of the event.
        immediate: u64,
    },
    /// Replace a word of the remote region by `new`, if it is `expected`.
    CompareSwap {
        /// The offset of the word, in bytes: a multiple of [`crate::limits::WORD_LEN`].
        remote_offset: u64,
        /// The expected value.
        expected: u64,
        /// The new value.
        new: u64,
    },
    /// Add to a word of the remote region, modulo 2^64.
    FetchAdd {
        /// The offset of the word, in bytes: a multiple of [`crate::limits::WORD_LEN`].
        remote_offset: u64,
        /// The addend.
        addend: u64,
    },
}

impl RecordedOp {
    /// The type of the op, which its key is bound to.
    #[must_use]
    pub const fn op_type(&self) -> OpType {
        match self {
            Self::OrderedWrite(_) => OpType::Write,
            Self::Send { .. } => OpType::Send,
            Self::WriteWithImm { .. } => OpType::WriteWithImm,
            Self::Notify { .. } => OpType::Notify,
            Self::CompareSwap { .. } => OpType::CompareSwap,
            Self::FetchAdd { .. } => OpType::FetchAdd,
        }
    }

    /// How many bytes of data the op has.
    #[must_use]
    pub const fn op_size(&self) -> u32 {
        match self {
            Self::OrderedWrite(transfer)
            | Self::Send { message: transfer, .. }
            | Self::WriteWithImm { transfer, .. } => transfer.op_size,
            Self::Notify { .. } | Self::FetchAdd { .. } => WORD_LEN as u32,
            Self::CompareSwap { .. } => 2 * WORD_LEN as u32,
        }
    }

    /// Returns the op's offset in the remote region, in bytes. 0 of what has no place there.
    #[must_use]
    pub const fn remote_offset(&self) -> u64 {
        match *self {
            Self::OrderedWrite(transfer)
            | Self::Send { message: transfer, .. }
            | Self::WriteWithImm { transfer, .. } => transfer.remote_offset,
            Self::CompareSwap { remote_offset, .. } | Self::FetchAdd { remote_offset, .. } => {
                remote_offset
            }
            Self::Notify { .. } => 0,
        }
    }

    /// Whether sizes and offsets are such as the op may have.
    #[inline(never)]
    pub(crate) const fn is_defined(&self) -> bool {
        let (offset, size) = (self.remote_offset(), self.op_size());
        let is_placed = match self {
            Self::Send { .. } => offset == 0,
            Self::OrderedWrite(_) | Self::WriteWithImm { ordered: true, .. } => {
                are_words(offset, size)
            }
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => are_words(offset, 0),
            Self::WriteWithImm { .. } | Self::Notify { .. } => true,
        };
        1 <= size && size <= OP_SIZE_MAX && is_placed
    }

    /// The immediate that goes with the request: of an op whose data is no immediate itself.
    pub(crate) const fn immediate(&self) -> u64 {
        match *self {
            Self::Send { immediate, .. } | Self::WriteWithImm { immediate, .. } => immediate,
            _ => 0,
        }
    }

    /// The bytes that the op moves, if they are a region's.
    pub(crate) const fn transfer(&self) -> Option<&Transfer> {
        match self {
            Self::OrderedWrite(transfer)
            | Self::Send { message: transfer, .. }
            | Self::WriteWithImm { transfer, .. } => Some(transfer),
            Self::Notify { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. } => None,
        }
    }

    //= channels#P3-solicited
    /// The data of an op that has no bytes of a region: words, in the order of the wire.
    pub(crate) const fn operands(&self) -> (u64, Option<u64>) {
        match *self {
            Self::Notify { immediate } => (immediate, None),
            Self::CompareSwap { expected, new, .. } => (expected, Some(new)),
            Self::FetchAdd { addend, .. } => (addend, None),
            Self::OrderedWrite(_) | Self::Send { .. } | Self::WriteWithImm { .. } => (0, None),
        }
    }
}

/// The op of a command.
///
/// With a tag of its own, which costs less to look at than one that is inside of what is recorded:
/// 30 instructions of a READ's turn when this was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandOp {
    /// Read remote memory (§3.1).
    Read(Transfer),
    /// Write remote memory (§5.1).
    Write(Transfer),
    /// Install this K_r at the remote region (§5.2).
    Rekey(RegionKey),
    /// Change something that the target records (not in the paper).
    Recorded {
        /// The change.
        op: RecordedOp,
        /// An op of this process on the same remote region whose end is known: its target need not
        /// record it any longer.
        done: Option<Done>,
    },
    /// Ask what became of a recorded op that ended with TIMEOUT (not in the paper). Of one that has
    /// not ended yet, it cancels it.
    Settle {
        /// The type of that op.
        op_type: OpType,
        /// Its name.
        name: OpName,
    },
}

impl CommandOp {
    /// The type of the op, which its key is bound to.
    #[must_use]
    pub const fn op_type(&self) -> OpType {
        match self {
            Self::Read(_) => OpType::Read,
            Self::Write(_) => OpType::Write,
            Self::Rekey(_) => OpType::Rekey,
            Self::Recorded { op, .. } => op.op_type(),
            Self::Settle { op_type, .. } => *op_type,
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
            Self::Recorded { op, .. } => op.transfer(),
            Self::Rekey(_) | Self::Settle { .. } => None,
        }
    }

    /// How many bytes the op transfers, either way. 0 of a SETTLE.
    #[must_use]
    #[inline]
    pub const fn op_size(&self) -> u32 {
        match self {
            Self::Read(transfer) | Self::Write(transfer) => transfer.op_size,
            Self::Rekey(_) => REGION_KEY_LEN as u32,
            Self::Recorded { op, .. } => op.op_size(),
            Self::Settle { .. } => 0,
        }
    }

    /// Whether sizes and offsets are such as the op may have. What they reach is checked elsewhere.
    #[inline]
    pub(crate) const fn is_defined(&self) -> bool {
        match self {
            Self::Read(Transfer { op_size, .. }) | Self::Write(Transfer { op_size, .. }) => {
                1 <= *op_size && *op_size <= OP_SIZE_MAX
            }
            Self::Rekey(_) => true,
            Self::Recorded { op, .. } => op.is_defined(),
            Self::Settle { op_type, .. } => op_type.may_be_recorded(),
        }
    }

    /// Returns the direction in which the op's data moves. A SETTLE has none, and waits for no
    /// window.
    #[must_use]
    #[inline]
    pub const fn moves(&self) -> Moves {
        if matches!(self, Self::Read(_)) { Moves::In } else { Moves::Out }
    }

    /// Whether the op is a mutation: whether its data goes to the target, once it asks for it.
    #[must_use]
    #[inline]
    pub const fn is_mutation(&self) -> bool {
        matches!(self, Self::Write(_) | Self::Rekey(_) | Self::Recorded { .. })
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
    /// The op that it asks for.
    pub op: CommandOp,
}

impl Command {
    /// The command of a slot that has none.
    pub const NONE: Self = Self {
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

    /// The command as the line that goes into the portal's ring; of a recorded op, as the first of
    /// two: see [`Command::to_second_line`].
    #[must_use]
    #[inline]
    pub fn to_line(&self) -> Line {
        let [a, b] = halves(&self.responder.to_octets());
        let [k, l] = halves(self.key.expose());
        let none = RegionId::from_bits(0);
        let (local_region, [x, y]) = match &self.op {
            CommandOp::Read(transfer) | CommandOp::Write(transfer) => {
                (transfer.local_region, [transfer.remote_offset, transfer.local_offset])
            }
            CommandOp::Rekey(key) => (none, halves(key.expose())),
            CommandOp::Recorded { op, .. } => match op.transfer() {
                Some(it) => (it.local_region, [it.remote_offset, it.local_offset]),
                None => (none, [op.remote_offset(), 0]),
            },
            CommandOp::Settle { name, .. } => {
                (none, [name.counter, lines::place(name.engine, name.number)])
            }
        };
        let kind = match &self.op {
            CommandOp::Read(_) | CommandOp::Write(_) | CommandOp::Rekey(_) => 0,
            CommandOp::Recorded { .. } => lines::RECORDED,
            CommandOp::Settle { .. } => lines::SETTLE,
        };
        Line([
            u64::from(self.slot.0)
                | u64::from(self.op.op_type() as u8 | kind) << 16
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

    /// The second line of a command that has one.
    #[must_use]
    #[inline]
    pub fn to_second_line(&self) -> Option<Line> {
        match &self.op {
            CommandOp::Recorded { op, done } => Some(lines::second(self.slot, op, *done)),
            _ => None,
        }
    }

    /// Whether a line carries a K_r, which must not lie about.
    pub(crate) const fn is_secret(line: &Line) -> bool {
        match OpType::from_code((line.0[0] >> 16) as u8) {
            Some(op_type) => op_type.shape().is_secret,
            None => false,
        }
    }

    /// Whether a line is the first of two.
    #[inline]
    pub(crate) const fn has_second(line: &Line) -> bool {
        (line.0[0] >> 16) as u8 & lines::RECORDED != 0
    }

    /// The slot that a command's first line names.
    #[inline]
    pub(crate) const fn slot_of(line: &Line) -> CommandSlotId {
        CommandSlotId(line.0[0] as u16)
    }

    /// The command in a line that an application wrote.
    ///
    /// # Errors
    /// The slot that the line names, if any other field has a value that is not defined, or if
    /// there ought to be a second line.
    #[inline]
    pub fn from_line(line: &Line) -> Result<Self, CommandSlotId> {
        let mut command = Self::NONE;
        match command.read(line, None) {
            Some(()) => Ok(command),
            None => Err(Self::slot_of(line)),
        }
    }

    /// The command in two lines that an application wrote.
    ///
    /// # Errors
    /// As [`Command::from_line`]: also if they do not belong together.
    pub fn from_lines(first: &Line, second: &Line) -> Result<Self, CommandSlotId> {
        let mut command = Self::NONE;
        command.read(first, Some(second)).map(|()| command).ok_or(Self::slot_of(first))
    }

    /// Becomes the command in the lines that an application wrote: in place, as most commands are
    /// much shorter than the longest. `None` if there is none; what it is then is undefined.
    #[inline]
    pub(crate) fn read(&mut self, line: &Line, second: Option<&Line>) -> Option<()> {
        let [head, a, b, regions, x, y, k, l] = line.0;
        let transfer = Transfer {
            op_size: (head >> 32) as u32,
            remote_offset: x,
            local_region: RegionId::from_bits((regions >> 32) as u32),
            local_offset: y,
        };
        let code = (head >> 16) as u8;
        self.slot = Self::slot_of(line);
        self.class = ClassOfService::from_code((head >> 24) as u8)?;
        self.responder = HostAddr::from_octets(whole([a, b]));
        self.remote_region = RegionId::from_bits(regions as u32);
        self.key = DerivedRegionKey::from_bytes(whole([k, l]));
        const READ: u8 = OpType::Read as u8;
        const WRITE: u8 = OpType::Write as u8;
        const REKEY: u8 = OpType::Rekey as u8;
        match code {
            READ => self.op = CommandOp::Read(transfer),
            WRITE => self.op = CommandOp::Write(transfer),
            REKEY => self.op = CommandOp::Rekey(RegionKey::from_bytes(whole([x, y]))),
            _ => self.op = lines::op(self.slot, code, transfer, second)?,
        }
        Some(())
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
    use crate::crypto::EngineId;

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

    fn ops() -> Vec<CommandOp> {
        let transfer = Transfer {
            op_size: 4096,
            remote_offset: u64::MAX - 3,
            local_region: RegionId::from_bits(7),
            local_offset: 1 << 50,
        };
        let key = RegionKey::from_bytes(core::array::from_fn(|i| 0xf0 - i as u8));
        vec![CommandOp::Read(transfer), CommandOp::Write(transfer), CommandOp::Rekey(key)]
    }

    fn recorded_ops() -> Vec<CommandOp> {
        let transfer = Transfer {
            op_size: 4096,
            remote_offset: u64::MAX - 7,
            local_region: RegionId::from_bits(7),
            local_offset: 1 << 50,
        };
        let message = Transfer { remote_offset: 0, ..transfer };
        let (remote_offset, immediate) = (1 << 60, u64::MAX - 1);
        let ops = [
            RecordedOp::OrderedWrite(transfer),
            RecordedOp::Send { message, immediate },
            RecordedOp::WriteWithImm { transfer, immediate, ordered: false },
            RecordedOp::WriteWithImm { transfer, immediate, ordered: true },
            RecordedOp::Notify { immediate },
            RecordedOp::CompareSwap { remote_offset, expected: u64::MAX, new: 3 },
            RecordedOp::FetchAdd { remote_offset, addend: u64::MAX },
        ];
        let done = [None, Some(Done { counter: u64::MAX, number: 0xfffe })];
        ops.into_iter().flat_map(|op| done.map(|done| CommandOp::Recorded { op, done })).collect()
    }

    #[test]
    fn a_recorded_op_round_trips_through_two_lines_and_not_through_one() {
        for command in recorded_ops().into_iter().map(command) {
            let (first, second) = (command.to_line(), command.to_second_line().unwrap());
            assert!(Command::has_second(&first) && !Command::is_secret(&first));
            assert_eq!(Command::from_lines(&first, &second), Ok(command));
            assert_eq!(Command::from_line(&first), Err(command.slot));
            assert_eq!(Command::from_line(&second), Err(command.slot));
            assert_eq!(Command::from_lines(&first, &first), Err(command.slot));
            let mut foreign = second;
            foreign.0[0] ^= 1;
            assert_eq!(Command::from_lines(&first, &foreign), Err(command.slot));
            let mut undefined = second;
            undefined.0[0] |= 0x80 << 24;
            assert_eq!(Command::from_lines(&first, &undefined), Err(command.slot));
        }
    }

    #[test]
    fn a_settle_round_trips_through_its_line() {
        let name = OpName { engine: EngineId(0xfffe), counter: u64::MAX, number: 0xfffd };
        for op_type in OpType::ALL {
            let settle = command(CommandOp::Settle { op_type, name });
            assert_eq!(settle.to_second_line(), None);
            let read = Command::from_line(&settle.to_line());
            assert_eq!(read, if op_type.may_be_recorded() { Ok(settle) } else { Err(settle.slot) });
        }
    }

    //= 1rma#4.4-command-self-contained
    //= type=test
    #[test]
    fn a_command_round_trips_through_its_line() {
        for command in ops().into_iter().map(command) {
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
}
