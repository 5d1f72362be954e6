//! Ops on regions in which the first byte comes after the last, at either end of an op. What their
//! offsets mean is told in `rma_shm::region`.

use super::{stage::Stage, *};
use crate::{command::RecordedOp, receive_queue::ReceiveQueueLayout};

/// More than an op, and no multiple of a frame.
const LEN: usize = 4096 + 64;

/// A stage on which both hosts' regions are circular. The initiator's has `pattern`, the
/// responder's something else.
fn stage(len: usize) -> Stage {
    let mut pair = Pair::new();
    for host in [&mut pair.a, &mut pair.b] {
        host.memory = Arc::new(Region::circular(len).unwrap());
        let both = Permissions::READ | Permissions::WRITE;
        host.region = register(&mut host.nic, &host.memory, &host.key, both);
    }
    pair.a.memory.copy_in(0, &pattern(len)).unwrap();
    pair.b.memory.copy_in(0, &vec![0xbb; len]).unwrap();
    Stage::of(pair, ReceiveQueueLayout::new(4, 64).unwrap()).0
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31) >> 3) as u8).collect()
}

fn bytes_of(memory: &Region) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.copy_out(0, &mut bytes).unwrap();
    bytes
}

/// The `size` bytes at offset `from` of one ring at offset `to` of another.
fn moved(source: &[u8], from: u64, sink: &[u8], to: u64, size: u32) -> Vec<u8> {
    let mut sink = sink.to_vec();
    let place = |offset: u64, at: u32| (offset as usize + at as usize) % LEN;
    for at in 0..size {
        sink[place(to, at)] = source[place(from, at)];
    }
    sink
}

/// Offsets and sizes that end before the end, at it, and beyond it by part of a word, of a frame
/// and of an op; and of the second time around.
fn places() -> Vec<(u64, u32)> {
    const END: u64 = LEN as u64;
    let mut places = vec![(0, 4096), (64, 4096), (END, 4096), (2 * END - 4096, 4096)];
    for before_end in [1, 3, 8, 64, 1000, 1440, 2048, 4090] {
        for size in [1, 9, 64, 1441, 4096] {
            places.push((END - before_end, size));
        }
    }
    places
}

#[test]
fn a_read_of_any_number_of_frames_goes_on_at_the_begin_at_both_ends_of_it() {
    for ((remote_offset, op_size), (local_offset, _)) in
        places().into_iter().zip(places().into_iter().rev())
    {
        let mut stage = stage(LEN);
        let local_offset = local_offset.min(2 * LEN as u64 - u64::from(op_size));
        let (target, sink) = (pattern(LEN), vec![0xaa; LEN]);
        stage.pair.b.memory.copy_in(0, &target).unwrap();
        stage.pair.a.memory.copy_in(0, &sink).unwrap();
        let transfer = Transfer { local_offset, ..stage.pair.transfer(remote_offset, op_size) };
        let command = stage.pair.command(0, CommandOp::Read(transfer));
        assert_eq!(stage.run(command).status, OpStatus::Ok, "{transfer:?}");
        let expected = moved(&target, remote_offset, &sink, local_offset, op_size);
        assert!(bytes_of(&stage.pair.a.memory) == expected, "{transfer:?}");
        assert!(bytes_of(&stage.pair.b.memory) == target, "{transfer:?}");
    }
}

#[test]
fn the_frames_of_a_read_across_the_end_may_come_in_any_order() {
    let mut stage = stage(LEN);
    stage.pair.b.memory.copy_in(0, &pattern(LEN)).unwrap();
    let command = stage.pair.read(0, LEN as u64 - 2000, 4096);
    let responses = stage.pair.responses_of(command);
    assert!(responses.len() > 1, "of several frames");
    for flight in responses.iter().rev() {
        stage.pair.deliver_to_a(flight).unwrap();
    }
    assert_eq!(stage.pair.status(), OpStatus::Ok);
    stage.pair.assert_arrived(LEN - 2000, 4096);
}

#[test]
fn writes_of_every_kind_go_on_at_the_begin_at_both_ends_of_them() {
    for ((remote_offset, op_size), (local_offset, _)) in
        places().into_iter().zip(places().into_iter().rev())
    {
        let local_offset = local_offset.min(2 * LEN as u64 - u64::from(op_size));
        for kind in ["plain", "ordered", "with immediate", "both"] {
            let mut stage = stage(LEN);
            stage.queue.post_all();
            let is_ordered = kind == "ordered" || kind == "both";
            let transfer = Transfer { local_offset, ..stage.pair.transfer(remote_offset, op_size) };
            let is_words = remote_offset.is_multiple_of(8) && op_size.is_multiple_of(8);
            if is_ordered && !is_words {
                continue;
            }
            let with_immediate =
                RecordedOp::WriteWithImm { transfer, immediate: 7, ordered: is_ordered };
            let command = match kind {
                "plain" => stage.pair.command(0, CommandOp::Write(transfer)),
                "ordered" => stage.recorded(0, RecordedOp::OrderedWrite(transfer)),
                _ => stage.recorded(0, with_immediate),
            };
            let (source, before) = (pattern(LEN), bytes_of(&stage.pair.b.memory));
            assert_eq!(stage.run(command).status, OpStatus::Ok, "{kind}: {transfer:?}");
            let expected = moved(&source, local_offset, &before, remote_offset, op_size);
            assert!(bytes_of(&stage.pair.b.memory) == expected, "{kind}: {transfer:?}");
            assert!(bytes_of(&stage.pair.a.memory) == source, "{kind}: {transfer:?}");
        }
    }
}

#[test]
fn atomics_change_the_same_word_at_both_of_its_offsets() {
    let mut stage = stage(64);
    stage.pair.b.memory.copy_in(0, &[0; 64]).unwrap();
    for (remote_offset, before) in [(56, 0), (120, 5), (56, 10)] {
        let added = stage.run(stage.fetch_add(0, remote_offset, 5));
        assert_eq!((added.status, added.result()), (OpStatus::Ok, Some(before)));
    }
    let swap = RecordedOp::CompareSwap { remote_offset: 120, expected: 15, new: 1 };
    assert_eq!(stage.run(stage.recorded(0, swap)).result(), Some(15));
    assert_eq!((stage.word(56), stage.word(120)), (1, 1));
    let beyond = stage.run(stage.fetch_add(0, 128, 5));
    assert_eq!(beyond.status, OpStatus::RemoteOutOfBounds);
}

#[test]
fn an_op_that_would_meet_itself_or_ends_beyond_the_second_time_around_is_refused() {
    let mut stage = stage(1024);
    let before = [bytes_of(&stage.pair.a.memory), bytes_of(&stage.pair.b.memory)];
    // The local end is not what refuses it.
    let memory = Arc::new(Region::new(4096).unwrap());
    let a = &mut stage.pair.a;
    let circular = a.region;
    a.region = register(&mut a.nic, &memory, &a.key, Permissions::NONE);
    for (offset, size) in [(0, 1088), (1, 1025), (1000, 4096), (1025, 1024), (2048, 1)] {
        for command in [stage.pair.read(0, offset, size), stage.pair.write(0, offset, size)] {
            assert_eq!(
                stage.run(command).status,
                OpStatus::RemoteOutOfBounds,
                "{size} at {offset}"
            );
        }
    }
    for size in [1032, 4096] {
        let ordered = stage.run(stage.ordered_write(0, 0, size));
        assert_eq!(ordered.status, OpStatus::RemoteOutOfBounds, "{size}");
    }
    stage.pair.a.region = circular;
    for (local_offset, op_size) in [(0, 1088), (1025, 1024), (2048, 1)] {
        let transfer = Transfer { local_offset, ..stage.pair.transfer(0, op_size) };
        let command = stage.pair.command(0, CommandOp::Read(transfer));
        assert_eq!(stage.run(command).status, OpStatus::InvalidCommand, "{transfer:?}");
    }
    assert_eq!([bytes_of(&stage.pair.a.memory), bytes_of(&stage.pair.b.memory)], before);
}
