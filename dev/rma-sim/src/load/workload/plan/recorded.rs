//! A recorded op in the place of a WRITE.

use std::sync::Arc;

use rma_core::{
    command::{Command, CommandOp, CommandSlotId, RecordedOp, Transfer},
    crypto::{KeyBinding, RegionKeySchedule},
    limits::{OP_SIZE_MAX, WORD_LEN},
    op::OpStatus,
    region::RegionId,
};

use super::{
    super::host::{AREA_LEN, Host, WORDS, draw_span},
    Flaw, Planned, Use,
};
use crate::prng::Prng;

/// The sort of a recorded op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    OrderedWrite,
    Send,
    WriteWithImm { ordered: bool },
    Notify,
    CompareSwap,
    FetchAdd,
}

/// A recorded op: what is asked for, where and with which key, what it does, and its bytes.
pub(super) struct Drawn<'a> {
    pub(super) op: CommandOp,
    pub(super) region: RegionId,
    pub(super) key: &'a RegionKeySchedule,
    pub(super) purpose: Use,
    pub(super) bytes: Arc<[u8]>,
}

const WORD: u64 = WORD_LEN as u64;

/// The addends of one word are together less than how far swapped values are apart.
const ADDEND_BITS: u32 = 40;
const VALUE_SHIFT: u32 = 51;

/// How many values are swapped into words, at most: none comes twice in a word.
const VALUES: u64 = (1 << (63 - VALUE_SHIFT)) - 1;

pub(in super::super) fn draw_addend(prng: &mut Prng) -> u64 {
    1 + prng.below(1 << ADDEND_BITS)
}

/// The value that is swapped in as number `number`.
pub(in super::super) const fn swapped_value(number: u64) -> Option<u64> {
    if number < VALUES { Some(1 << 63 | number << VALUE_SHIFT) } else { None }
}

/// Draws one for `target` of `remote`. Where it writes, it has `area` to itself, if one is free.
pub(super) fn draw<'a>(
    prng: &mut Prng,
    remote: &'a Host,
    (target, area): (usize, Option<usize>),
    transfer: Transfer,
    value: Option<u64>,
) -> Drawn<'a> {
    let sort = prng.choose(&[
        Sort::OrderedWrite,
        Sort::Send,
        Sort::Send,
        Sort::WriteWithImm { ordered: false },
        Sort::WriteWithImm { ordered: true },
        Sort::Notify,
        Sort::CompareSwap,
        Sort::CompareSwap,
        Sort::FetchAdd,
        Sort::FetchAdd,
    ]);
    let (wanted, queue) = (&remote.targets()[target], remote.queue(target));
    let immediate = prng.next();
    let no_bytes: Arc<[u8]> = Arc::from([]);
    let to_region = |op, purpose, bytes| {
        let (op, region, key) =
            (CommandOp::Recorded { op, done: None }, wanted.row.id, &wanted.row.key);
        Drawn { op, region, key, purpose, bytes }
    };
    let to_queue = |op, purpose, bytes| {
        let (op, region, key) =
            (CommandOp::Recorded { op, done: None }, queue.row.id, &queue.row.key);
        Drawn { op, region, key, purpose, bytes }
    };
    let word = wanted.word_offset(prng.below(WORDS as u64) as usize);
    match (sort, area) {
        (Sort::Send, _) if queue.layout().buffer_len() > 0 => {
            let op_size = transfer.op_size.min(queue.layout().buffer_len());
            let message = Transfer { op_size, remote_offset: 0, ..transfer };
            to_queue(RecordedOp::Send { message, immediate }, Use::Send, draw_bytes(prng, op_size))
        }
        (Sort::OrderedWrite | Sort::WriteWithImm { ordered: true }, _)
            if let Some(board) = &wanted.board =>
        {
            let (offset, op_size) = draw_span(prng, transfer.op_size);
            let remote_offset = board.start() + offset as u64;
            let transfer = Transfer { op_size, remote_offset, ..transfer };
            let op = match sort {
                Sort::OrderedWrite => RecordedOp::OrderedWrite(transfer),
                _ => RecordedOp::WriteWithImm { transfer, immediate, ordered: true },
            };
            to_region(op, Use::Board { offset }, draw_bytes(prng, op_size))
        }
        (Sort::WriteWithImm { ordered: false }, Some(area)) => {
            let start = wanted.area_start(area);
            let slack = AREA_LEN as u64 - u64::from(transfer.op_size);
            let remote_offset = start + prng.below(slack + 1);
            let transfer = Transfer { remote_offset, ..transfer };
            let offset = (remote_offset - start) as usize;
            let op = RecordedOp::WriteWithImm { transfer, immediate, ordered: false };
            let bytes = draw_bytes(prng, transfer.op_size);
            to_region(op, Use::Write { area, offset }, bytes)
        }
        (Sort::CompareSwap, _) if let Some(new) = value => {
            // Often what is there, or was a while ago.
            let there = wanted.load(word);
            let expected = prng.choose(&[there, there, there, 0]);
            let op = RecordedOp::CompareSwap { remote_offset: word, expected, new };
            to_region(op, Use::Atomic { offset: word }, no_bytes)
        }
        (Sort::CompareSwap | Sort::FetchAdd, _) => {
            let op = RecordedOp::FetchAdd { remote_offset: word, addend: draw_addend(prng) };
            to_region(op, Use::Atomic { offset: word }, no_bytes)
        }
        (Sort::Notify | Sort::Send | Sort::OrderedWrite | Sort::WriteWithImm { .. }, _) => {
            to_queue(RecordedOp::Notify { immediate }, Use::Notify, no_bytes)
        }
    }
}

fn draw_bytes(prng: &mut Prng, len: u32) -> Arc<[u8]> {
    let mut bytes = vec![0; len as usize];
    prng.fill(&mut bytes);
    bytes.into()
}

/// Gives a recorded op a flaw in its sizes or places, and says how it must end with it.
pub(super) fn spoil(
    prng: &mut Prng,
    flaw: Flaw,
    planned: Planned,
    local: &Host,
    remote: &Host,
    binding: &KeyBinding,
) -> Planned {
    let mut spoiled = planned;
    let target = &remote.targets()[spoiled.target];
    let end = target.len();
    let buffer_len = remote.queue(spoiled.target).layout().buffer_len();
    let slot = spoiled.command.slot;
    let Command { op: CommandOp::Recorded { op, .. }, remote_region, key, .. } =
        &mut spoiled.command
    else {
        return spoiled;
    };
    spoiled.expected = OpStatus::InvalidCommand;
    let is_out = flaw == Flaw::RemoteOutOfBounds;
    match op {
        // A region that is no queue.
        RecordedOp::Notify { .. } => {
            *remote_region = target.row.id;
            *key = target.row.key.derive(binding);
            spoiled.expected = OpStatus::RemotePermissionDenied;
        }
        RecordedOp::CompareSwap { remote_offset, .. }
        | RecordedOp::FetchAdd { remote_offset, .. } => {
            if is_out {
                *remote_offset = prng.choose(&[end, u64::MAX - (WORD - 1)]);
                spoiled.expected = OpStatus::RemoteOutOfBounds;
            } else {
                *remote_offset += 1 + prng.below(WORD - 1);
            }
        }
        RecordedOp::Send { message, .. } => match flaw {
            Flaw::RemoteOutOfBounds if buffer_len < OP_SIZE_MAX => {
                message.op_size = buffer_len + 1;
                message.local_offset = local.local_offset(slot.0);
                spoiled.expected = OpStatus::RemoteOutOfBounds;
            }
            Flaw::RemoteOutOfBounds => message.remote_offset = 1,
            _ => spoil_transfer(prng, flaw, message, local, slot),
        },
        RecordedOp::OrderedWrite(transfer) | RecordedOp::WriteWithImm { transfer, .. } => {
            if is_out {
                let last = end - u64::from(transfer.op_size);
                transfer.remote_offset = (last + 1).next_multiple_of(WORD);
                spoiled.expected = OpStatus::RemoteOutOfBounds;
            } else {
                spoil_transfer(prng, flaw, transfer, local, slot);
            }
        }
    }
    spoiled
}

/// Makes `transfer` one that the local NIC refuses.
fn spoil_transfer(
    prng: &mut Prng,
    flaw: Flaw,
    transfer: &mut Transfer,
    local: &Host,
    slot: CommandSlotId,
) {
    let process = local.process_of(slot.0);
    match flaw {
        Flaw::NoLocalRegion => transfer.local_region = RegionId::from_bits(u32::MAX),
        Flaw::LocalRegionOfAnotherProcess => {
            transfer.local_region = local.local[1 - process].0;
        }
        Flaw::LocalOutOfBounds => {
            let size = u64::from(transfer.op_size);
            let (_, memory) = &local.local[process];
            transfer.local_offset =
                prng.choose(&[memory.len() as u64 - size + 1, u64::MAX, u64::MAX - size + 1]);
        }
        _ => transfer.op_size = prng.choose(&[0, OP_SIZE_MAX + 1, u32::MAX]),
    }
}
