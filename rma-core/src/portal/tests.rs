use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::{
    addr::HostAddr,
    command::{Command, CommandOp, CommandSlotId, Completion, Transfer},
    crypto::{DerivedRegionKey, RegionKey},
    error::SubmitError,
    grant::Grant,
    op::{ClassOfService, OpStatus, OpType},
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
