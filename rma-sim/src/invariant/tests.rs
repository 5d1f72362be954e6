//! The checker finds what it is there to find.

use super::*;
use crate::{clock::ClockOptions, link::LinkOptions, node::NodeOptions};
use rma_core::{
    addr::HostAddr,
    backend::Transmit,
    command::{Command, CommandSlotId, Completion},
    op::OpStatus,
    wire::Header,
};

fn sim() -> Sim {
    let node = |host| {
        let addr: HostAddr = core::net::Ipv4Addr::new(192, 0, 2, host).into();
        NodeOptions {
            nic: NicConfigBuilder { addresses: addr.into(), ..NicConfigBuilder::default() },
            mtu: 1500,
            rate: 1_000_000_000,
            receive_ring: 1,
            clock: ClockOptions::default(),
        }
    };
    Sim::new(&[node(1), node(2)], LinkOptions::default(), None, 1).unwrap()
}

fn seen(what: What) -> Seen {
    Seen { at: Instant::ZERO, local: Instant::ZERO, node: NodeId(0), what }
}

fn notice(number: u64) -> Arc<Frame> {
    let mut bytes = [0; rma_core::wire::failure::FAILURE_LEN];
    let header = Header {
        class: Default::default(),
        pid: rma_core::addr::Pid(1),
        region: rma_core::region::RegionId::from_bits(0),
        slot: CommandSlotId(0),
        generation: 1,
        engine: Default::default(),
        counter: 9,
    };
    rma_core::wire::Failure { header, status: OpStatus::Nack }.emit(&mut bytes);
    let addr = |host| core::net::Ipv4Addr::new(192, 0, 2, host).into();
    let transmit = Transmit {
        source: addr(1),
        destination: addr(2),
        len: bytes.len(),
        flow: 0,
        may_resolve: true,
    };
    let (from, to) = (NodeId(0), Some(NodeId(1)));
    Arc::new(Frame { number, from, to, transmit, bytes: bytes.into() })
}

#[test]
fn a_completion_that_nobody_asked_for_is_found() {
    let sim = sim();
    let done = Completion::new(CommandSlotId(3), OpStatus::Ok, 0, 0);
    let found = Checker::new(&sim).take(&sim, &seen(What::Completed(done)));
    assert!(matches!(found, Err(Violation::CompletedUnasked { slot: 3, .. })));
}

#[test]
fn a_repeated_iv_is_found_also_after_a_crash_and_so_is_an_accepted_corruption() {
    let sim = sim();
    let mut checker = Checker::new(&sim);
    let sent = |number| seen(What::Sent { frame: notice(number), arrives: true, extra_copies: 0 });
    assert_eq!(checker.take(&sim, &sent(0)), Ok(()));
    assert_eq!(checker.counters_used(NodeId(0)), 10);
    assert_eq!(checker.take(&sim, &seen(What::Crashed)), Ok(()));
    assert_eq!(checker.counters_used(NodeId(0)), 10);
    let found = checker.take(&sim, &sent(1));
    assert!(matches!(found, Err(Violation::IvRepeated { counter: 9, .. })));
    let altered = Some(vec![0; 5].into());
    let received = What::Received {
        frame: notice(0),
        altered,
        extra: false,
        result: Ok(()),
        stalled: core::time::Duration::ZERO,
        counted_late: false,
    };
    let found = checker.take(&sim, &seen(received));
    assert!(matches!(found, Err(Violation::CorruptedAccepted { .. })));
}

/// The op of before the crash is over, and its slot free.
#[test]
fn a_completion_of_before_a_crash_is_found() {
    let mut sim = sim();
    let mut checker = Checker::new(&sim);
    sim.nic_mut(NodeId(0)).configure_slots(0..1, Some(rma_core::addr::Pid(1)));
    let line = rma_shm::Line([1 << 16 | 1 << 32, 0, 0, 0, 0, 0, 0, 0]);
    let command = Command::from_line(&line).unwrap();
    let issued = seen(What::Issued { command, result: Ok(()) });
    assert_eq!(checker.take(&sim, &issued), Ok(()));
    assert_eq!(checker.outstanding(), 1);
    assert_eq!(checker.take(&sim, &seen(What::Crashed)), Ok(()));
    assert_eq!(checker.outstanding(), 0);
    let done = Completion::new(CommandSlotId(0), OpStatus::Timeout, 0, 0);
    let found = checker.take(&sim, &seen(What::Completed(done)));
    assert!(matches!(found, Err(Violation::CompletedUnasked { slot: 0, .. })));
}
