use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::{
    addr::HostAddr,
    command::{self, Command, CommandOp, CommandSlotId, Completion, Ending, Transfer},
    crypto::{DerivedRegionKey, EngineId, RegionKey},
    error::SubmitError,
    grant::Grant,
    op::{ClassOfService, OpStatus, OpType},
    outcome::OpName,
    region::{RegionId, RegisteredRegion},
};
use rma_shm::{Flags, LayoutError, Region};

fn local() -> HostAddr {
    "192.0.2.1".parse().unwrap()
}

fn config(slots: Range<u16>) -> PortalConfig {
    PortalConfig {
        slots,
        pid: Pid(7),
        addresses: local().into(),
        bell: None,
        flag: None,
        nic: NicTag(1),
    }
}

fn pair(slots: Range<u16>) -> (CommandPortal, PortalPort) {
    portal(config(slots))
}

/// [`pair`], and what an application has of it that breaks the rules.
fn pair_and_memory(slots: Range<u16>) -> (CommandPortal, PortalPort, PortalMemory) {
    let count = slots.len() as u16;
    let mapping = Arc::new(Mapping::heap(PortalMemory::footprint(count)));
    let memory = PortalMemory::format(&mapping, count).unwrap();
    let join = || PortalMemory::join(&mapping, count).unwrap();
    (join().into_application(config(slots.clone())), join().into_port(slots), memory)
}

fn grant() -> Grant {
    Grant {
        responder: "192.0.2.2".parse().unwrap(),
        region: RegionId::from_bits(3),
        region_len: 4096,
        initiator: local(),
        pid: Pid(7),
        op_type: OpType::Read,
        key: DerivedRegionKey::from_bytes([1; 16]),
    }
}

fn sink(len: usize) -> RegisteredRegion {
    RegisteredRegion::new(RegionId::from_bits(9), Arc::new(Region::new(len).unwrap()), NicTag(1))
}

//= 1rma#4.4-portal
//= type=test
//= 1rma#4.3-slots-cap-ops
//= type=test
//= 1rma#B-command-store
//= type=test
#[test]
fn a_command_passes_and_its_completion_frees_the_slot() {
    let (mut portal, mut port) = pair(4..5);
    let sink = sink(64);
    let slot = portal.read(&grant(), 100, &sink, 0, 64).unwrap();
    assert_eq!(slot, CommandSlotId(4));
    assert_eq!(
        portal.read(&grant(), 0, &sink, 0, 1).unwrap_err(),
        SubmitError::NoFreeCommandSlot { slots: 1 }
    );
    let command = port.take().unwrap().unwrap();
    assert_eq!((command.slot, command.op.op_size()), (slot, 64));
    let CommandOp::Read(Transfer { remote_offset: 100, .. }) = command.op else {
        panic!("a read at 100: {command:?}")
    };
    assert!(port.take().is_none());
    assert!(portal.poll().is_none());
    port.complete(&Completion::new(slot, OpStatus::Ok, 1, 2));
    assert_eq!(portal.poll().unwrap().slot, slot);
    assert!(portal.read(&grant(), 0, &sink, 0, 1).is_ok());
}

#[test]
fn the_engine_is_told_of_a_batch_once_and_of_one_without_ops_never() {
    let flags = Flags::new();
    let flag = Some(Flag::new(flags.clone(), 3));
    let (mut portal, mut port) = portal(PortalConfig { flag, ..config(0..4) });
    let (grant, sink) = (grant(), sink(64));
    let read = |op_size| ReadOp {
        grant: &grant,
        remote_offset: 0,
        sink: &sink,
        sink_offset: 0,
        op_size,
        class: ClassOfService::Latency,
    };
    drop(portal.batch());
    portal.batch().read(&read(65)).unwrap_err();
    assert_eq!(flags.raised(), 0, "nothing was issued");
    let mut batch = portal.batch();
    batch.read(&read(64)).unwrap();
    batch.read(&read(65)).unwrap_err();
    assert_eq!(flags.raised(), 0, "the batch is not over");
    drop(batch);
    assert_eq!(flags.raised(), 1 << 3);
    assert!(port.take().is_some() && port.take().is_none());
}

#[test]
fn the_ring_keeps_no_copy_of_a_new_region_key() {
    let (mut portal, mut port, memory) = pair_and_memory(0..2);
    let memory = memory.commands();
    let key = RegionKey::from_bytes([0x5a; 16]);
    let to_rekey = Grant { op_type: OpType::Rekey, ..grant() };
    portal.rekey(&to_rekey, key).unwrap();
    portal.read(&grant(), 0, &sink(64), 0, 64).unwrap();
    let rekey = port.take().unwrap().unwrap();
    assert_eq!(rekey.op, CommandOp::Rekey(key));
    assert_eq!(memory.line(0), rma_shm::Line::ZERO);
    let read = port.take().unwrap().unwrap();
    assert_eq!(memory.line(1), read.to_line(), "what holds no K_r costs no store");
}

#[test]
fn ops_that_cannot_be_right_are_refused_with_their_values() {
    let (mut portal, mut port) = pair(0..4);
    let sink = sink(100);
    for op_size in [0, 4097, u32::MAX] {
        let error = portal.read(&grant(), 0, &sink, 0, op_size).unwrap_err();
        assert_eq!(error, SubmitError::OpSize { op_size });
    }
    for (offset, op_size) in [(100, 1), (0, 101), (u64::MAX, 1), (u64::MAX - 63, 64)] {
        let error = portal.read(&grant(), 0, &sink, offset, op_size).unwrap_err();
        assert!(matches!(error, SubmitError::LocalOutOfBounds { .. }), "{error}");
    }
    let other_process = Grant { pid: Pid(8), ..grant() };
    let error = portal.read(&other_process, 0, &sink, 0, 1).unwrap_err();
    assert_eq!(error, SubmitError::GrantForAnotherProcess { granted: Pid(8), portal: Pid(7) });
    let other_host = Grant { initiator: grant().responder, ..grant() };
    let error = portal.read(&other_host, 0, &sink, 0, 1).unwrap_err();
    assert_eq!(error, SubmitError::GrantForAnotherHost { granted: grant().responder });
    let error = portal.write(&grant(), 0, &sink, 0, 1).unwrap_err();
    let (granted, wanted) = (OpType::Read, OpType::Write);
    assert_eq!(error, SubmitError::GrantForAnotherOpType { granted, wanted });
    let error = portal.rekey(&grant(), RegionKey::from_bytes([0; 16])).unwrap_err();
    assert!(matches!(error, SubmitError::GrantForAnotherOpType { .. }), "{error}");
    let elsewhere = RegisteredRegion::new(sink.id(), sink.memory().clone(), NicTag(2));
    let error = portal.read(&grant(), 0, &elsewhere, 0, 1).unwrap_err();
    assert_eq!(error, SubmitError::RegionOfAnotherHost { region: sink.id() });
    assert_eq!(portal.outstanding(), 0);
    assert!(port.take().is_none(), "nothing was issued");
}

#[test]
fn an_application_that_does_not_poll_stalls_itself() {
    let (mut portal, mut port) = pair(0..2);
    let sink = sink(64);
    let line =
        |slot: u16| Command { slot: CommandSlotId(slot), ..command_of(&grant(), &sink) }.to_line();
    // A hostile application issues on and on, without ever taking a completion.
    for slot in [0, 1] {
        portal.commands.push(&line(slot)).unwrap();
        let taken = port.take().unwrap().unwrap();
        port.complete(&Completion::new(taken.slot, OpStatus::Ok, 0, 0));
    }
    portal.commands.push(&line(0)).unwrap();
    assert!(port.take().is_none(), "the completion would have no room");
    assert!(port.is_idle(), "it does not keep the engine from its sleep either");
    assert!(portal.completions.pop().is_some());
    assert!(port.take().is_some());
}

#[test]
fn a_completion_has_its_room_though_the_application_takes_its_index_back() {
    let (mut portal, mut port, memory) = pair_and_memory(0..2);
    let (sink, memory) = (sink(64), memory.completions());
    for round in 0..2 {
        let slot = portal.read(&grant(), 0, &sink, 0, 64).unwrap();
        port.take().unwrap().unwrap();
        port.complete(&Completion::new(slot, OpStatus::Ok, 0, 0));
        assert_eq!(portal.poll().unwrap().slot, slot, "round {round}");
    }
    for _ in 0..2 {
        portal.read(&grant(), 0, &sink, 0, 64).unwrap();
        port.take().unwrap().unwrap();
    }
    memory.set_head(0);
    assert!(port.take().is_none());
    for slot in [CommandSlotId(0), CommandSlotId(1)] {
        port.complete(&Completion::new(slot, OpStatus::Ok, 0, 0));
    }
    assert_eq!(memory.tail(), 4);
    assert!(port.is_settled());
}

#[test]
fn a_command_that_a_broken_engine_leaves_no_room_for_is_refused() {
    let (mut portal, _, memory) = pair_and_memory(0..2);
    let (sink, mut completions) = (sink(64), memory.completions().clone().into_producer());
    // It completes what it has not taken: two entries for every slot are full after four commands.
    for _ in 0..4 {
        let slot = portal.read(&grant(), 0, &sink, 0, 64).unwrap();
        completions.push(&Completion::new(slot, OpStatus::Ok, 0, 0).to_line()).unwrap();
        assert_eq!(portal.poll().map(|completion| completion.slot), Some(slot));
    }
    for _ in 0..3 {
        let error = portal.read(&grant(), 0, &sink, 0, 64).unwrap_err();
        assert_eq!((error, portal.outstanding()), (SubmitError::CommandsNotTaken, 0));
    }
}

#[test]
fn impossible_indexes_of_both_rings_are_told_once() {
    let (_portal, mut port, memory) = pair_and_memory(0..2);
    memory.commands().set_tail(5);
    assert!(port.take().is_none(), "two slots, of two lines each at most");
    memory.commands().set_tail(1);
    memory.completions().set_head(1);
    assert!(port.take().is_some(), "the ring has room by what was seen last");
    assert_eq!((port.impossible_indexes(), port.impossible_indexes()), (1, 0));
    memory.commands().set_tail(3);
    memory.completions().set_head(u32::MAX);
    assert!(port.take().is_some(), "any line is one");
    assert!(port.take().is_none(), "there is no room, and an index that shrank makes none");
    assert_eq!((port.impossible_indexes(), port.impossible_indexes()), (1, 0));
}

fn command_of(grant: &Grant, sink: &RegisteredRegion) -> Command {
    Command {
        slot: CommandSlotId(0),
        class: ClassOfService::Latency,
        responder: grant.responder,
        remote_region: grant.region,
        key: grant.key,
        op: CommandOp::Read(Transfer {
            op_size: 1,
            remote_offset: 0,
            local_region: sink.id(),
            local_offset: 0,
        }),
    }
}

#[test]
fn the_layout_is_what_both_sides_rely_on() {
    // A change to one of these counts up the version.
    let [commands, completions] = [16, 8].map(|entries| 384 + entries * 64);
    assert_eq!(PortalMemory::footprint(5), 384 + commands + completions);
    let mapping = Arc::new(Mapping::heap(PortalMemory::footprint(5)));
    let memory = PortalMemory::format(&mapping, 5).unwrap();
    memory.engine_doorbell().prepare_sleep();
    memory.application_doorbell().prepare_sleep();
    memory.commands().set_tail(3);
    memory.completions().set_head(4);
    let word = |at: usize| mapping.words()[at / 8].load(Relaxed);
    assert_eq!(word(0).to_ne_bytes(), *b"1RMAport");
    assert_eq!((word(8), word(16)), (2, 8));
    assert_eq!((word(128), word(256)), (1, 1));
    assert_eq!((word(384 + 128), word(384 + commands + 256)), (3, 4));
    assert_eq!([word(384), word(384 + commands)].map(u64::to_ne_bytes), [*b"1RMAring"; 2]);
    assert_eq!((word(384 + 16), word(384 + commands + 16)), (16, 8));
}

/// Part of the layout: another process writes and reads these lines.
#[test]
fn commands_and_completions_are_encoded_as_both_sides_rely_on() {
    let command = Command {
        slot: CommandSlotId(0x0102),
        class: ClassOfService::Throughput,
        key: DerivedRegionKey::from_bytes(*b"0123456789abcdef"),
        op: CommandOp::Write(Transfer {
            op_size: 0x0506,
            remote_offset: 7,
            local_region: RegionId::from_bits(8),
            local_offset: 9,
        }),
        ..command_of(&grant(), &sink(64))
    };
    let words = |bytes: [u8; 16]| {
        [0, 8].map(|at| u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index])))
    };
    let [[a, b], [k, l]] = [command.responder.to_octets(), *b"0123456789abcdef"].map(words);
    // WRITE, in the throughput class.
    let head = 0x0506_0000_0000 | 1 << 24 | 2 << 16 | 0x0102;
    assert_eq!(command.to_line().0, [head, a, b, 3 | 8 << 32, 7, 9, k, l]);
    let completion = Completion::new(CommandSlotId(0x0102), OpStatus::Timeout, 5, 6);
    assert_eq!(completion.to_line().0, [3 << 16 | 0x0102, 5, 6, 0, 0, 0, 0, 0]);
}

#[test]
fn a_mapping_that_holds_no_such_portal_is_refused_with_what_is_there() {
    let mapping = Arc::new(Mapping::heap(PortalMemory::footprint(4)));
    let refused = |slots| PortalMemory::join(&mapping, slots).unwrap_err();
    assert!(matches!(refused(4), LayoutError::Kind { found: [0, ..], .. }));
    assert!(matches!(refused(5), LayoutError::TooShort { .. }));
    assert!(matches!(PortalMemory::format(&mapping, 5), Err(LayoutError::TooShort { .. })));
    PortalMemory::format(&mapping, 4).unwrap();
    assert!(matches!(refused(2), LayoutError::Size { found: 4, wanted: 2, .. }));
    assert!(PortalMemory::join(&mapping, 3).is_ok(), "it has as many entries");
    // Version, size, and the labels of the two rings.
    let commands = 384 + 8 * 64;
    for word in [8, 16, 384, 384 + 8, 384 + 16, 384 + commands].map(|at| &mapping.words()[at / 8]) {
        let right = word.swap(77, Relaxed);
        let error = refused(4);
        assert!(error.to_string().contains("77") || matches!(error, LayoutError::Kind { .. }));
        word.store(right, Relaxed);
    }
    assert!(PortalMemory::join(&mapping, 4).is_ok());
}

fn fetch_add(slot: CommandSlotId, addend: u64) -> Command {
    let op = command::RecordedOp::FetchAdd { remote_offset: 8, addend };
    let op = CommandOp::Recorded { op, done: None };
    Command { slot, op, ..command_of(&grant(), &sink(64)) }
}

#[test]
fn a_lone_line_of_a_command_that_has_two_is_an_unreadable_command() {
    let (mut portal, mut port) = pair(0..8);
    let slot = CommandSlotId(3);
    let command = fetch_add(slot, 5);
    let (first, second) = (command.to_line(), command.to_second_line().unwrap());
    let read = command_of(&grant(), &sink(64)).to_line();
    let taken = |lines: &[rma_shm::Line], portal: &mut CommandPortal, port: &mut PortalPort| {
        lines.iter().for_each(|line| portal.commands.push(line).unwrap());
        let taken: Vec<_> = core::iter::from_fn(|| port.take()).collect();
        for _ in &taken {
            port.complete(&Completion::new(slot, OpStatus::InvalidCommand, 0, 0));
            assert!(portal.completions.pop().is_some());
        }
        taken
    };
    let mut taken = |lines: &[rma_shm::Line]| taken(lines, &mut portal, &mut port);
    assert_eq!(taken(&[first]), [Err(slot)]);
    assert_eq!(taken(&[second]), [Err(slot)]);
    assert_eq!(taken(&[second, first]), [Err(slot); 2]);
    // A line in the place of the second one is no command of its own.
    assert_eq!(taken(&[first, read]), [Err(slot)]);
    assert_eq!(taken(&[first, first]), [Err(slot)]);
    let mut other = second;
    other.0[0] ^= 1;
    assert_eq!(taken(&[first, other]), [Err(slot)], "another slot's");
    assert_eq!(taken(&[first, second]), [Ok(command)], "and then all is well again");
}

#[test]
fn the_ring_has_room_for_commands_of_two_lines_in_every_slot_wherever_it_begins() {
    let (mut portal, mut port) = pair(0..4);
    let (sink, to_add) = (sink(64), Grant { op_type: OpType::FetchAdd, ..grant() });
    for round in 0..9 {
        // An odd number of lines before, so that pairs lie across the end of the ring, too.
        portal.read(&grant(), 0, &sink, 0, 64).unwrap();
        let read = port.take().unwrap().unwrap();
        port.complete(&Completion::new(read.slot, OpStatus::Ok, 0, 0));
        portal.poll().unwrap();
        let slots = [0, 1, 2, 3].map(|addend| portal.fetch_add(&to_add, 8, addend).unwrap());
        let full = SubmitError::NoFreeCommandSlot { slots: 4 };
        assert_eq!(portal.fetch_add(&to_add, 8, 9), Err(full), "round {round}");
        for (addend, slot) in slots.into_iter().enumerate() {
            let taken = port.take().unwrap().unwrap();
            assert_eq!(
                taken,
                Command { responder: to_add.responder, ..fetch_add(slot, addend as u64) }
            );
            port.complete(&Completion::new(slot, OpStatus::Nack, 0, 0));
        }
        assert!(port.take().is_none());
        assert_eq!(core::iter::from_fn(|| portal.poll()).count(), 4);
    }
}

#[test]
fn the_next_op_of_a_slot_on_the_same_region_says_that_the_last_is_done_if_its_end_is_known() {
    let (mut portal, mut port) = pair(0..1);
    let here = Grant { op_type: OpType::FetchAdd, ..grant() };
    let elsewhere = Grant { region: RegionId::from_bits(4), ..here };
    let name = |counter| OpName { engine: EngineId(1), counter, number: 300 };
    let mut issue = |grant: &Grant, counter, status| {
        let slot = portal.fetch_add(grant, 8, 1).unwrap();
        let CommandOp::Recorded { done, .. } = port.take().unwrap().unwrap().op else {
            panic!("a recorded op")
        };
        let ending = Ending::NONE.reached().named(name(counter));
        port.complete(&Completion::new(slot, status, 0, 0).ending(ending));
        portal.poll().unwrap();
        done.map(|it| it.counter)
    };
    assert_eq!(issue(&here, 1, OpStatus::Ok), None);
    assert_eq!(issue(&here, 2, OpStatus::Timeout), Some(1));
    assert_eq!(issue(&here, 3, OpStatus::Ok), None, "what timed out may be asked about");
    assert_eq!(issue(&elsewhere, 4, OpStatus::Ok), None);
    assert_eq!(issue(&here, 5, OpStatus::RemoteAuthenticationFailure), Some(3));
    assert_eq!(issue(&here, 6, OpStatus::Ok), Some(5));
    // By turns, as whoever reserves in one region and writes to another.
    assert_eq!(issue(&elsewhere, 7, OpStatus::Ok), Some(4));
    assert_eq!(issue(&here, 8, OpStatus::Ok), Some(6));
    assert_eq!(issue(&elsewhere, 9, OpStatus::Ok), Some(7));
    // Of three the oldest is forgotten.
    let third = Grant { region: RegionId::from_bits(5), ..here };
    assert_eq!(issue(&third, 10, OpStatus::Ok), None);
    assert_eq!(issue(&here, 11, OpStatus::Ok), None);
    assert_eq!(issue(&third, 12, OpStatus::Ok), Some(10));
    assert_eq!(issue(&here, 13, OpStatus::Ok), Some(11));
}

#[test]
fn recorded_ops_that_cannot_be_right_are_refused_with_their_values() {
    let (mut portal, mut port) = pair(0..4);
    let sink = sink(100);
    let of = |op_type| Grant { op_type, ..grant() };
    for remote_offset in [1, 4, u64::MAX] {
        let error = portal.fetch_add(&of(OpType::FetchAdd), remote_offset, 1).unwrap_err();
        assert_eq!(error, SubmitError::Misaligned { remote_offset, op_size: 8 });
        let error = portal.compare_swap(&of(OpType::CompareSwap), remote_offset, 0, 1).unwrap_err();
        assert_eq!(error, SubmitError::Misaligned { remote_offset, op_size: 16 });
    }
    let source = |len| Source { region: &sink, offset: 0, len };
    for (remote_offset, len) in [(0, 12), (4, 8), (1, 1)] {
        let error = portal.write_ordered(&of(OpType::Write), remote_offset, source(len));
        assert_eq!(error, Err(SubmitError::Misaligned { remote_offset, op_size: len }));
    }
    for len in [0, 4097, u32::MAX] {
        let error = portal.send(&of(OpType::Send), &sink, 0, len, 1).unwrap_err();
        assert_eq!(error, SubmitError::OpSize { op_size: len });
        let imm = of(OpType::WriteWithImm);
        let error = portal.write_with_imm(&imm, 0, source(len), 1).unwrap_err();
        assert_eq!(error, SubmitError::OpSize { op_size: len });
    }
    let error = portal.send(&of(OpType::Send), &sink, 37, 64, 1).unwrap_err();
    assert!(matches!(error, SubmitError::LocalOutOfBounds { .. }), "{error}");
    for granted in OpType::ALL.into_iter().filter(|&it| it != OpType::Notify) {
        let error = portal.notify(&of(granted), 1).unwrap_err();
        let wanted = OpType::Notify;
        assert_eq!(error, SubmitError::GrantForAnotherOpType { granted, wanted });
    }
    let name = OpName { engine: EngineId(1), counter: 1, number: 300 };
    for op_type in [OpType::Read, OpType::Rekey] {
        let error = portal.settle(&of(op_type), name).unwrap_err();
        assert_eq!(error, SubmitError::NotRecorded { op_type });
    }
    assert_eq!(portal.outstanding(), 0);
    assert!(port.take().is_none(), "nothing was issued");
}
