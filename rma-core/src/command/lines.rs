//! The encoding of commands that 1RMA does not have (not in the paper): recorded ops, into two
//! lines, and SETTLE.
//!
//! | word of the second line | holds |
//! |---|---|
//! | 0 | slot; [`SECOND`] from bit 16; flags from bit 24 |
//! | 1, 2 | immediate, or the operands of an atomic |
//! | 3, 4 | counter and number of the op that is done; 0 and 0 if there is none |
//! | 5 to 7 | 0; not looked at |

use rma_shm::Line;

use super::{CommandOp, CommandSlotId, RecordedOp, Transfer};
use crate::{
    crypto::EngineId,
    op::OpType,
    outcome::{Done, OpName},
};

/// The bit that a recorded op adds to the op type's octet.
pub(super) const RECORDED: u8 = 0x40;
/// The bit that a SETTLE adds to it.
pub(super) const SETTLE: u8 = 0x20;
/// The mark in place of an op type in a second line: none, so that alone it is no command.
const SECOND: u8 = 0x80;
/// The flag of ordered placement.
const ORDERED: u8 = 1;

/// Engine and number of a name, as one word.
pub(super) const fn place(engine: EngineId, number: u16) -> u64 {
    engine.0 as u64 | (number as u64) << u16::BITS
}

/// The second line of a recorded op.
#[inline(never)]
pub(super) fn second(slot: CommandSlotId, op: &RecordedOp, done: Option<Done>) -> Line {
    let flags = match op {
        RecordedOp::WriteWithImm { ordered: true, .. } => ORDERED,
        _ => 0,
    };
    let (x, y) = match *op {
        RecordedOp::OrderedWrite(_) => (0, 0),
        RecordedOp::Send { immediate, .. }
        | RecordedOp::WriteWithImm { immediate, .. }
        | RecordedOp::Notify { immediate } => (immediate, 0),
        RecordedOp::CompareSwap { expected, new, .. } => (expected, new),
        RecordedOp::FetchAdd { addend, .. } => (addend, 0),
    };
    let Done { counter, number } = done.unwrap_or(Done { counter: 0, number: 0 });
    let head = u64::from(slot.0) | u64::from(SECOND) << 16 | u64::from(flags) << 24;
    Line([head, x, y, counter, number.into(), 0, 0, 0])
}

/// The op whose first line has `code` and `transfer`; `None` if there is none such.
#[cold]
#[inline(never)]
pub(super) fn op(
    slot: CommandSlotId,
    code: u8,
    transfer: Transfer,
    second: Option<&Line>,
) -> Option<CommandOp> {
    let op_type =
        OpType::from_code(code & !(RECORDED | SETTLE)).filter(|it| it.may_be_recorded())?;
    match (code & (RECORDED | SETTLE), second) {
        (RECORDED, Some(second)) => recorded(slot, op_type, transfer, second),
        (SETTLE, None) => Some(CommandOp::Settle {
            op_type,
            name: OpName {
                engine: EngineId(transfer.local_offset as u16),
                counter: transfer.remote_offset,
                number: (transfer.local_offset >> u16::BITS) as u16,
            },
        }),
        _ => None,
    }
}

fn recorded(
    slot: CommandSlotId,
    op_type: OpType,
    transfer: Transfer,
    second: &Line,
) -> Option<CommandOp> {
    let [head, x, y, counter, number, ..] = second.0;
    let flags = (head >> 24) as u8;
    let belongs = head as u16 == slot.0 && (head >> 16) as u8 == SECOND;
    let ordered = flags == ORDERED;
    if !belongs || flags & !ORDERED != 0 || (ordered && op_type != OpType::WriteWithImm) {
        return None;
    }
    let remote_offset = transfer.remote_offset;
    let op = match op_type {
        OpType::Write => RecordedOp::OrderedWrite(transfer),
        OpType::Send => RecordedOp::Send { message: transfer, immediate: x },
        OpType::WriteWithImm => RecordedOp::WriteWithImm { transfer, immediate: x, ordered },
        OpType::Notify => RecordedOp::Notify { immediate: x },
        OpType::CompareSwap => RecordedOp::CompareSwap { remote_offset, expected: x, new: y },
        OpType::FetchAdd => RecordedOp::FetchAdd { remote_offset, addend: x },
        OpType::Read | OpType::Rekey => return None,
    };
    let done = (counter > 0).then_some(Done { counter, number: number as u16 });
    Some(CommandOp::Recorded { op, done })
}
