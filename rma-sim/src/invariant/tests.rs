//! The checker finds what it is there to find.

use super::*;
use crate::{clock::ClockOptions, link::LinkOptions, node::NodeOptions};
use rma_core::{
    addr::HostAddr,
    backend::Transmit,
    command::{Command, CommandOp, CommandSlotId, Completion, Transfer},
    op::OpStatus,
    region::RegionId,
    wire::{
        Acknowledgement, Header, Mutation, MutationRequest, Solicitation, SolicitedData,
        mutation::{ACKNOWLEDGEMENT_LEN, DATA_OVERHEAD, MUTATION_REQUEST_LEN, SOLICITATION_LEN},
    },
};

fn sim() -> Sim {
    let node = |host| NodeOptions {
        nic: NicConfigBuilder { addresses: addr(host).into(), ..NicConfigBuilder::default() },
        mtu: 1500,
        rate: 1_000_000_000,
        receive_ring: 1,
        clock: ClockOptions::default(),
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
        region: RegionId::from_bits(0),
        slot: CommandSlotId(0),
        generation: 1,
        engine: Default::default(),
        counter: 9,
    };
    rma_core::wire::Failure { header, status: OpStatus::Nack }.emit(&mut bytes);
    frame(number, 0, &bytes)
}

fn addr(host: u8) -> HostAddr {
    core::net::Ipv4Addr::new(192, 0, 2, host).into()
}

/// A frame from one node to the other.
fn frame(number: u64, from: u16, bytes: &[u8]) -> Arc<Frame> {
    let transmit = Transmit {
        source: addr(1 + from as u8),
        destination: addr(2 - from as u8),
        len: bytes.len(),
        flow: 0,
        may_resolve: true,
    };
    let (from, to) = (NodeId(from), Some(NodeId(1 - from)));
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

/// A write of 100 bytes by `n0` to `n1`, hop by hop, as a checker sees it.
struct Write {
    sim: Sim,
    checker: Checker,
    frames: u64,
}

const REGION: RegionId = RegionId::from_bits(5);
const STATUS_OK: OpStatus = OpStatus::Ok;

impl Write {
    /// Up to the hop 2 that the initiator has accepted. The op, its request and its solicitation.
    fn solicited() -> (Self, [Arc<Frame>; 2]) {
        let mut sim = sim();
        let pid = Some(rma_core::addr::Pid(1));
        sim.nic_mut(NodeId(0)).configure_slots(0..1, pid);
        let checker = Checker::new(&sim);
        let mut write = Self { sim, checker, frames: 0 };
        let transfer =
            Transfer { op_size: 100, remote_offset: 0, local_region: REGION, local_offset: 0 };
        let command = Command {
            slot: CommandSlotId(0),
            class: Default::default(),
            responder: addr(2),
            remote_region: REGION,
            key: rma_core::crypto::DerivedRegionKey::from_bytes([0; 16]),
            op: CommandOp::Write(transfer),
        };
        assert_eq!(write.see(0, What::Issued { command, result: Ok(()) }), Ok(()));
        let request = write.request();
        assert_eq!(write.pass(&request), Ok(()));
        let solicitation = write.solicitation();
        assert_eq!(write.pass(&solicitation), Ok(()));
        (write, [request, solicitation])
    }

    fn header(&self) -> Header {
        Header {
            class: Default::default(),
            pid: rma_core::addr::Pid(1),
            region: REGION,
            slot: CommandSlotId(0),
            generation: 1,
            engine: Default::default(),
            counter: 100 + self.frames,
        }
    }

    fn frame(&mut self, from: u16, bytes: &[u8]) -> Arc<Frame> {
        let number = self.frames;
        self.frames += 1;
        frame(number, from, bytes)
    }

    fn request(&mut self) -> Arc<Frame> {
        let mut out = [0; MUTATION_REQUEST_LEN];
        let mutation = Mutation::Write { region_offset: 0, op_size: 100 };
        MutationRequest { header: self.header(), mutation, timeout_micros: 9 }.emit(&mut out);
        self.frame(0, &out)
    }

    fn solicitation(&mut self) -> Arc<Frame> {
        let mut out = [0; SOLICITATION_LEN];
        let header = self.header();
        Solicitation { header, pending: 0, payload_len_max: 64 }.emit(&mut out);
        self.frame(1, &out)
    }

    fn data(&mut self, op_offset: u16, payload_len: u16) -> Arc<Frame> {
        let mut out = vec![0; DATA_OVERHEAD + usize::from(payload_len)];
        let data = SolicitedData { header: self.header(), pending: 0, op_offset, payload_len };
        data.emit(out.first_chunk_mut().unwrap());
        self.frame(0, &out)
    }

    fn acknowledgement(&mut self, status: OpStatus) -> Arc<Frame> {
        let mut out = [0; ACKNOWLEDGEMENT_LEN];
        Acknowledgement { header: self.header(), status }.emit(&mut out);
        self.frame(1, &out)
    }

    fn see(&mut self, node: u16, what: What) -> Result<(), Violation> {
        self.checker.take(&self.sim, &Seen { node: NodeId(node), ..seen(what) })
    }

    fn send(&mut self, frame: &Arc<Frame>) -> Result<(), Violation> {
        let frame = frame.clone();
        self.see(frame.from.0, What::Sent { frame, arrives: true, extra_copies: 1 })
    }

    /// A copy of `frame` arrives and is accepted, by a node that is stopped for so long meanwhile.
    fn accept(&mut self, frame: &Arc<Frame>, nanos: u64) -> Result<(), Violation> {
        let frame = frame.clone();
        let to = 1 - frame.from.0;
        self.see(
            to,
            What::Received {
                frame,
                altered: None,
                extra: true,
                stalled: core::time::Duration::from_nanos(nanos),
                result: Ok(()),
                counted_late: false,
            },
        )
    }

    fn pass(&mut self, frame: &Arc<Frame>) -> Result<(), Violation> {
        self.send(frame)?;
        self.accept(frame, 0)
    }

    /// The op is reported as timed out, at time zero by all clocks.
    fn fail(&mut self) -> Result<(), Violation> {
        let done = Completion::new(CommandSlotId(0), OpStatus::Timeout, 0, 0);
        self.see(0, What::Completed(done))
    }
}

#[test]
fn a_write_that_goes_as_it_should_is_fine() {
    let (mut write, _) = Write::solicited();
    for (op_offset, payload_len) in [(0, 64), (64, 36)] {
        let data = write.data(op_offset, payload_len);
        assert_eq!(write.pass(&data), Ok(()));
    }
    let acknowledgement = write.acknowledgement(STATUS_OK);
    assert_eq!(write.pass(&acknowledgement), Ok(()));
    let done = Completion::new(CommandSlotId(0), STATUS_OK, 0, 0);
    assert_eq!(write.see(0, What::Completed(done)), Ok(()));
}

#[test]
fn data_that_is_applied_twice_or_after_the_report_is_found() {
    let (mut write, _) = Write::solicited();
    let [first, second] = [(0, 64), (64, 36)].map(|(start, len)| {
        let data = write.data(start, len);
        assert_eq!(write.send(&data), Ok(()));
        data
    });
    assert_eq!(write.accept(&first, 0), Ok(()));
    assert!(matches!(write.accept(&first, 0), Err(Violation::AcceptedTwice { slot: 0, .. })));
    // Too early for a timeout, which is found as well.
    assert!(matches!(write.fail(), Err(Violation::Unexplained { .. })));
    assert!(matches!(write.accept(&second, 0), Err(Violation::AppliedLate { slot: 0, .. })));
}

#[test]
fn what_a_stopped_node_was_applying_at_the_report_and_did_not_count_is_found() {
    let (mut write, _) = Write::solicited();
    let data = write.data(0, 64);
    assert_eq!(write.send(&data), Ok(()));
    assert_eq!(write.accept(&data, 1), Ok(()));
    assert!(matches!(write.fail(), Err(Violation::SilentlyLate { slot: 0, .. })));
}

#[test]
fn a_second_solicitation_and_data_that_nobody_asked_for_are_found() {
    let (mut write, [request, _]) = Write::solicited();
    assert_eq!(write.accept(&request, 0), Ok(()), "a duplicate, which a responder cannot know");
    let second = write.solicitation();
    assert!(matches!(write.pass(&second), Err(Violation::AcceptedTwice { slot: 0, .. })));
    let third = write.solicitation();
    assert!(matches!(write.send(&third), Err(Violation::WrongFrame { .. })), "two requests came");
    let ahead = write.data(64, 36);
    assert!(
        matches!(write.send(&ahead), Err(Violation::WrongFrame { .. })),
        "the rest comes first"
    );
}

#[test]
fn an_acknowledgement_before_the_last_data_is_found() {
    let (mut write, _) = Write::solicited();
    let data = write.data(0, 64);
    assert_eq!(write.pass(&data), Ok(()));
    let early = write.acknowledgement(STATUS_OK);
    assert!(matches!(write.send(&early), Err(Violation::WrongFrame { .. })));
}

#[test]
fn what_is_believed_under_an_old_key_is_found() {
    let (mut write, [request, _]) = Write::solicited();
    let data = write.data(0, 64);
    assert_eq!(write.send(&data), Ok(()));
    write.checker.region_changed(NodeId(1), REGION);
    assert!(matches!(write.accept(&data, 0), Err(Violation::OldKey { slot: 0, .. })));
    assert!(matches!(write.accept(&request, 0), Err(Violation::OldKey { slot: 0, .. })));
}
