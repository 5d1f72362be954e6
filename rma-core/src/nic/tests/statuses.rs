//! Each way in which an op can end, and what brings it about.

use super::*;

/// A slot that is not used otherwise.
const SLOT: u16 = 0;

/// Issues `command`, moves all frames there are, lets the longest time pass that an op may take,
/// and tells how it ended.
fn end_of(pair: &mut Pair, command: Command) -> OpStatus {
    pair.issue(command);
    pair.exchange();
    let bound = pair.a.nic.config().settings().timing.bound(command.op.op_type());
    pair.advance(bound);
    pair.status()
}

fn rekey_and_both_transfers(pair: &Pair) -> [Command; 3] {
    [pair.read(SLOT, 0, 64), pair.write(SLOT, 0, 64), pair.rekey(SLOT, [3; 16])]
}

/// Of a NIC with room for `window` bytes, whose responder has `tables` entries in its queue and
/// table.
fn pair_with(window: u32, tables: u32) -> Pair {
    Pair::with(NicConfigBuilder {
        solicitation_window: window,
        inbound_queue: tables,
        pending_writes: tables,
        ..NicConfigBuilder::default()
    })
}

//= 1rma#4.5-status-codes
//= type=test
#[test]
fn an_op_ends_as_the_paper_s_table_says() {
    let mut pair = Pair::new();
    for command in rekey_and_both_transfers(&pair) {
        let op_type = command.op.op_type();
        assert_eq!(end_of(&mut pair, command), OpStatus::Ok, "{op_type:?}");

        let stranger = Command { key: DerivedRegionKey::from_bytes([9; 16]), ..command };
        let refused = OpStatus::RemoteAuthenticationFailure;
        assert_eq!(end_of(&mut pair, stranger), refused, "{op_type:?} under a wrong key");
        let nowhere = Command { remote_region: RegionId::from_bits(0xffff_0001), ..command };
        assert_eq!(end_of(&mut pair, nowhere), refused, "{op_type:?} of no region");

        let to_nobody = Command { responder: "192.0.2.9".parse().unwrap(), ..command };
        assert_eq!(end_of(&mut pair, to_nobody), OpStatus::Timeout, "{op_type:?} to nobody");
    }
}

//= 1rma#4.5-status-codes
//= type=test
#[test]
fn an_op_that_finds_the_responder_s_tables_full_ends_as_nack() {
    for op_type in [OpType::Read, OpType::Write] {
        let mut pair = pair_with(OP_SIZE_MAX * 8, 1);
        let [first, second] = [0, 1].map(|slot| match op_type {
            OpType::Read => pair.read(slot, 0, OP_SIZE_MAX),
            _ => pair.write(slot, 0, 64),
        });
        pair.issue(first);
        pair.issue(second);
        // Both come before the responder has sent anything.
        pair.exchange();
        let mut ends = [pair.completion(), pair.completion()];
        ends.sort_by_key(|completion| completion.slot);
        let ends = ends.map(|completion| completion.status);
        assert_eq!(ends, [OpStatus::Ok, OpStatus::Nack], "{op_type:?}");
    }
}

//= 1rma#4.5-status-codes
//= type=test
#[test]
fn an_op_that_never_enters_service_ends_as_dispatch_timeout() {
    let mut pair = pair_with(OP_SIZE_MAX, 8);
    let settings = *pair.a.nic.config().settings();
    // It has the whole window, and its answer is lost.
    pair.issue(pair.read(1, 0, 64));
    assert_eq!(pair.requests().len(), 1);
    pair.issue(pair.read(SLOT, 0, 64));
    assert!(pair.requests().is_empty());
    pair.advance(settings.timing.dispatch_timeout);
    assert_eq!(pair.status(), OpStatus::DispatchTimeout);
    pair.advance(settings.timing.timeout);
    assert_eq!(pair.status(), OpStatus::Timeout);
}

//= 1rma#4.5-status-codes
//= type=test
#[test]
fn an_op_ends_with_a_status_of_ours_where_the_paper_has_none() {
    let mut pair = Pair::new();
    let region_len = REGION_LEN as u64;
    for command in [pair.read(SLOT, region_len - 63, 64), pair.write(SLOT, region_len - 63, 64)] {
        assert_eq!(end_of(&mut pair, command), OpStatus::RemoteOutOfBounds);
    }
    let local_region = RegionId::from_bits(0xffff_0001);
    let op = CommandOp::Read(Transfer { local_region, ..pair.transfer(0, 64) });
    let command = pair.command(SLOT, op);
    assert_eq!(end_of(&mut pair, command), OpStatus::InvalidCommand);

    let closed = register(&mut pair.b.nic, &pair.b.memory.clone(), &pair.b.key, Permissions::NONE);
    for command in rekey_and_both_transfers(&pair) {
        let denied = Command { remote_region: closed, ..command };
        assert_eq!(end_of(&mut pair, denied), OpStatus::RemotePermissionDenied);
    }
}
