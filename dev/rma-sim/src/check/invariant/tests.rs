//! The checker finds what it is there to find.

mod recorded;

use core::time::Duration;

use super::*;
use crate::net::{
    clock::ClockOptions,
    link::LinkOptions,
    node::{NodeOptions, Pace},
    trace::Landing,
};
use rma_core::{
    addr::HostAddr,
    backend::Transmit,
    command::{Command, CommandOp, CommandSlotId, Completion, Transfer},
    crypto::{DerivedRegionKey, Iv, fastest},
    error::DropReason,
    limits::TAG_LEN,
    nic::NicPlace,
    op::OpStatus,
    port::Port,
    region::RegionId,
    wire::{
        Acknowledgement, Failure, Header, Mutation, MutationRequest, Solicitation, SolicitedData,
        failure::FAILURE_LEN,
        mutation::{ACKNOWLEDGEMENT_LEN, DATA_OVERHEAD, MUTATION_REQUEST_LEN, SOLICITATION_LEN},
    },
};
use rma_crypto::{SealJob, Text};

fn sim() -> Sim {
    sim_with(Pace::Hardware)
}

fn sim_with(pace: Pace) -> Sim {
    let node = |host| NodeOptions {
        nic: NicConfigBuilder::default(),
        place: NicPlace::at(addr(host)),
        mtu: 1500,
        rate: 1_000_000_000,
        pace,
        receive_ring: 1,
        clock: ClockOptions::default(),
    };
    Sim::new(&[node(1), node(2)], LinkOptions::default(), None, 1).unwrap()
}

impl Checker {
    /// Looks at all nodes: where nothing has happened, there is nothing to find, nor to forget.
    pub(super) fn look_elsewhere(&mut self, sim: &Sim) -> Result<(), Violation> {
        for node in sim.engines().filter(|&it| sim.condition(it) != Condition::Down) {
            let held = |checker: &Self| {
                let NodeState { pending, jobs, in_flight, .. } = &checker.nodes[node.index()];
                (pending.len(), jobs.each_ref().map(Vec::len), *in_flight)
            };
            let (before, peak) = (held(self), self.peak_in_flight);
            self.check_turn(sim, node)?;
            let due = self.check_tables(sim, node)?;
            assert_eq!((held(self), self.peak_in_flight), (before, peak), "{node}");
            assert_eq!(due, self.dues.of(node), "{node}");
        }
        Ok(())
    }
}

fn seen(what: What) -> Seen {
    Seen { at: Instant::ZERO, local: Instant::ZERO, node: NodeId(0), what }
}

fn addr(host: u8) -> HostAddr {
    core::net::Ipv4Addr::new(192, 0, 2, host).into()
}

/// A frame from one node to the other.
fn frame(number: u64, from: u16, bytes: &[u8]) -> Arc<Frame> {
    let ends = [addr(1 + from as u8), addr(2 - from as u8)];
    let class = ClassOfService::Throughput;
    let transmit = Transmit::new(ends, Port::ONE_RMA, class, bytes.len());
    let (from, to) = (NodeId(from), Some(NodeId(1 - from)));
    Arc::new(Frame { number, from, to, transmit, bytes: bytes.into(), berth: None })
}

const LANDING: Landing = Landing { copy: 0, at: Instant::ZERO };

#[test]
fn a_completion_that_nobody_asked_for_is_found() {
    let sim = sim();
    let done = Completion::new(CommandSlotId(3), OpStatus::Ok, 0, 0);
    let found = Checker::new(&sim).take(&sim, &seen(What::Completed(done)));
    assert!(matches!(found, Err(Violation::CompletedUnasked { slot: 3, .. })));
}

#[test]
fn an_accepted_corruption_is_found() {
    let (mut write, [request, _]) = Write::solicited();
    let altered = Some(vec![0; 5].into());
    let received = What::Received {
        frame: request,
        altered,
        extra: true,
        result: Ok(()),
        stalled: Duration::ZERO,
        counted_late: false,
        pushed_out: false,
        landing: LANDING,
    };
    assert!(matches!(write.see(1, received), Err(Violation::CorruptedAccepted { .. })));
}

#[test]
fn a_repeated_iv_is_found_also_after_a_crash() {
    let (mut write, [request, _]) = Write::solicited();
    assert_eq!(write.see(0, What::Crashed), Ok(()));
    assert_eq!(write.issue(), Ok(()));
    let again = write.frame(0, &request.bytes);
    assert!(matches!(write.send(&again), Err(Violation::IvRepeated { counter: 100, .. })));
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

/// Makes the completion of an op whose data was sent.
fn reached(status: OpStatus) -> Completion {
    let may_have_changed = if status == OpStatus::Timeout { 2 } else { 0 };
    let head = (status as u64) << 16 | (1 | may_have_changed) << 24;
    Completion::from_line(&rma_shm::Line([head, 0, 0, 0, 0, 0, 0, 0])).unwrap()
}

/// A write of 100 bytes by `n0` to `n1`, hop by hop, as a checker sees it.
struct Write {
    sim: Sim,
    checker: Checker,
    frames: u64,
    /// The time by all clocks.
    local: Instant,
}

const REGION: RegionId = RegionId::from_bits(5);
const KEY: DerivedRegionKey = DerivedRegionKey::from_bytes([0; 16]);
const STATUS_OK: OpStatus = OpStatus::Ok;

impl Write {
    /// Up to the hop 2 that the initiator has accepted. The op, its request and its solicitation.
    fn solicited() -> (Self, [Arc<Frame>; 2]) {
        Self::solicited_with(Pace::Hardware)
    }

    fn solicited_with(pace: Pace) -> (Self, [Arc<Frame>; 2]) {
        let mut sim = sim_with(pace);
        let pid = Some(rma_core::addr::Pid(1));
        sim.nic_mut(NodeId(0)).configure_slots(0..1, pid);
        let checker = Checker::new(&sim);
        let mut write = Self { sim, checker, frames: 0, local: Instant::ZERO };
        assert_eq!(write.issue(), Ok(()));
        let request = write.request();
        assert_eq!(write.pass(&request), Ok(()));
        let solicitation = write.solicitation();
        assert_eq!(write.pass(&solicitation), Ok(()));
        (write, [request, solicitation])
    }

    fn issue(&mut self) -> Result<(), Violation> {
        let transfer =
            Transfer { op_size: 100, remote_offset: 0, local_region: REGION, local_offset: 0 };
        self.issue_op(0, CommandOp::Write(transfer))
    }

    fn issue_op(&mut self, slot: u16, op: CommandOp) -> Result<(), Violation> {
        let command = Command {
            slot: CommandSlotId(slot),
            class: Default::default(),
            responder: addr(2),
            remote_region: REGION,
            key: KEY,
            op,
        };
        self.see(0, What::Issued { command, result: Ok(()) })
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
        MutationRequest { header: self.header(), mutation, timeout_micros: 9 }
            .emit(out.first_chunk_mut().expect("it is longer"));
        self.frame(0, &out)
    }

    fn solicitation(&mut self) -> Arc<Frame> {
        let mut out = [0; SOLICITATION_LEN];
        let header = self.header();
        Solicitation { header, pending: 0, payload_len_max: 64 }
            .emit(out.first_chunk_mut().expect("it is longer"));
        self.frame(1, &out)
    }

    fn data(&mut self, op_offset: u16, payload_len: u16) -> Arc<Frame> {
        let mut out = vec![0; DATA_OVERHEAD + usize::from(payload_len)];
        let data = SolicitedData { header: self.header(), pending: 0, op_offset, payload_len };
        data.emit(out.first_chunk_mut().unwrap());
        self.frame(0, &out)
    }

    /// A notice of `status` that is sealed under `key` and bound to `request`.
    fn notice(&mut self, status: OpStatus, key: &DerivedRegionKey, request: &Frame) -> Arc<Frame> {
        let mut out = [0; FAILURE_LEN];
        let header = self.header();
        Failure { header, status }.emit(out.first_chunk_mut().expect("it is longer"));
        let Ok(FrameView::MutationRequest(view)) = FrameView::parse(&request.bytes) else {
            panic!("a request");
        };
        let tag = request.bytes.last_chunk::<TAG_LEN>().unwrap();
        let asked = view.claims().header;
        let asked = Iv::new(Direction::ToResponder, asked.engine, asked.counter);
        let (own, sealed) = out.split_last_chunk_mut::<TAG_LEN>().unwrap();
        let aad = [&*own, asked.octets(), tag].concat();
        let iv = Iv::new(Direction::ToInitiator, header.engine, header.counter);
        let (key, iv, text) = (key.as_key().into(), *iv.octets(), Text::empty());
        fastest().seal(&mut [SealJob { key, iv, aad: &aad, text, tag: sealed }]);
        self.frame(1, &out)
    }

    fn acknowledgement(&mut self, status: OpStatus) -> Arc<Frame> {
        let mut out = [0; ACKNOWLEDGEMENT_LEN];
        Acknowledgement { header: self.header(), status }
            .emit(out.first_chunk_mut().expect("it is longer"));
        self.frame(1, &out)
    }

    fn see(&mut self, node: u16, what: What) -> Result<(), Violation> {
        self.checker.take(&self.sim, &Seen { node: NodeId(node), local: self.local, ..seen(what) })
    }

    fn send(&mut self, frame: &Arc<Frame>) -> Result<(), Violation> {
        let frame = frame.clone();
        self.see(frame.from.0, What::Sent { frame, arrives: true, extra_copies: 1 })
    }

    /// A copy of `frame` arrives and is dropped.
    fn refuse(&mut self, frame: &Arc<Frame>, reason: DropReason) -> Result<(), Violation> {
        self.receive(frame, 0, Err(reason))
    }

    /// A copy of `frame` arrives and is accepted, by a node that is stopped for so long meanwhile.
    fn accept(&mut self, frame: &Arc<Frame>, nanos: u64) -> Result<(), Violation> {
        self.receive(frame, nanos, Ok(()))
    }

    fn receive(
        &mut self,
        frame: &Arc<Frame>,
        nanos: u64,
        result: Result<(), DropReason>,
    ) -> Result<(), Violation> {
        let frame = frame.clone();
        let to = 1 - frame.from.0;
        self.see(
            to,
            What::Received {
                frame,
                altered: None,
                extra: true,
                stalled: Duration::from_nanos(nanos),
                result,
                counted_late: false,
                pushed_out: false,
                landing: LANDING,
            },
        )
    }

    fn pass(&mut self, frame: &Arc<Frame>) -> Result<(), Violation> {
        self.send(frame)?;
        self.accept(frame, 0)
    }

    /// The op is reported as timed out, at time zero by all clocks.
    fn fail(&mut self) -> Result<(), Violation> {
        self.see(0, What::Completed(reached(OpStatus::Timeout)))
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
    assert_eq!(write.see(0, What::Completed(reached(STATUS_OK))), Ok(()));
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
fn data_of_the_latency_class_that_does_not_leave_in_one_turn_is_found() {
    let engine = Pace::Engine { turn: Default::default() };
    let is_torn = |found| matches!(found, Err(Violation::Torn { slot: 0, .. }));
    for pace in [engine, Pace::Hardware] {
        let [began, all] = [&[(0, 64)][..], &[(0, 64), (64, 36)]].map(|parts| {
            let (mut write, _) = Write::solicited_with(pace);
            for &(start, len) in parts {
                let data = write.data(start, len);
                assert_eq!(write.send(&data), Ok(()));
            }
            write
        });
        // The turn ends.
        let ended = |write: Write| {
            let Write { sim, mut checker, .. } = write;
            checker.check(&sim)
        };
        assert_eq!(is_torn(ended(began)), pace == engine);
        assert!(!is_torn(ended(all)));
        // Something else leaves before the rest.
        let (mut write, [request, _]) = Write::solicited_with(pace);
        let data = write.data(0, 64);
        assert_eq!(write.send(&data), Ok(()));
        let other = write.frame(0, &request.bytes);
        assert_eq!(is_torn(write.send(&other)), pace == engine);
    }
}

#[test]
fn an_op_that_a_stopped_node_applied_and_did_not_count_is_found() {
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
fn belief_in_a_frame_under_an_old_key_is_found() {
    let (mut write, [request, _]) = Write::solicited();
    let data = write.data(0, 64);
    assert_eq!(write.send(&data), Ok(()));
    write.checker.region_changed(NodeId(1), REGION);
    assert!(matches!(write.accept(&data, 0), Err(Violation::OldKey { slot: 0, .. })));
    assert!(matches!(write.accept(&request, 0), Err(Violation::OldKey { slot: 0, .. })));
}

#[test]
fn a_notice_answers_one_copy_of_one_request_and_says_what_became_of_it() {
    let (mut write, [request, _]) = Write::solicited();
    let denied = OpStatus::RemotePermissionDenied;
    let nack = |write: &mut Write| write.notice(OpStatus::Nack, &KEY, &request);
    let is_unasked = |found| matches!(found, Err(Violation::UnaskedNotice { .. }));
    let early = nack(&mut write);
    assert!(is_unasked(write.send(&early)), "the one copy that came was solicited");
    assert_eq!(write.refuse(&request, DropReason::InboundQueueFull), Ok(()));
    let wrong = write.notice(denied, &KEY, &request);
    assert!(is_unasked(write.send(&wrong)));
    let reserved = write.notice(OpStatus::Nack, &DerivedRegionKey::RESERVED, &request);
    assert!(is_unasked(write.send(&reserved)), "under the wrong key");
    let unbound = write.notice(OpStatus::Nack, &KEY, &with_tag(&request, 1));
    assert!(is_unasked(write.send(&unbound)), "to another request");
    write.frames = 2;
    let right = nack(&mut write);
    assert_eq!(write.send(&right), Ok(()));
    let again = nack(&mut write);
    assert!(is_unasked(write.send(&again)));
}

/// Of two copies one waited for too long before the key changed, and is told so only after the
/// other, which is told of the key.
#[test]
fn of_copies_that_wait_each_may_be_told_what_became_of_it_in_any_order() {
    let (mut write, [request, _]) = Write::solicited();
    let timeout = settings(&write.sim, NodeId(1)).timing.dispatch_timeout;
    for waited in [Duration::ZERO, timeout / 2] {
        write.local = Instant::ZERO + waited;
        assert_eq!(write.accept(&request, 0), Ok(()));
    }
    write.checker.region_changed(NodeId(1), REGION);
    write.local = Instant::ZERO + timeout;
    let unauthenticated = OpStatus::RemoteAuthenticationFailure;
    let stale = write.notice(unauthenticated, &DerivedRegionKey::RESERVED, &request);
    assert_eq!(write.send(&stale), Ok(()));
    let nack = write.notice(OpStatus::Nack, &KEY, &request);
    assert_eq!(write.send(&nack), Ok(()));
}

/// A request that differs from `request` in its tag alone.
fn with_tag(request: &Frame, number: u64) -> Arc<Frame> {
    let mut bytes = request.bytes.clone();
    let tag = bytes.last_chunk_mut::<TAG_LEN>().unwrap();
    tag[..8].copy_from_slice(&number.to_be_bytes());
    let Frame { number, from, to, transmit, berth, .. } = *request;
    Arc::new(Frame { number, from, to, transmit, bytes, berth })
}

impl Write {
    /// `request` is refused for `reason`, as by who it cannot be authenticated to, and that is
    /// told.
    fn tell(&mut self, request: &Arc<Frame>, reason: DropReason) -> Result<(), Violation> {
        assert_eq!(self.refuse(request, reason), Ok(()));
        let unauthenticated = OpStatus::RemoteAuthenticationFailure;
        let notice = self.notice(unauthenticated, &DerivedRegionKey::RESERVED, request);
        let may_resolve = reason == DropReason::OldKey;
        let Frame { number, from, to, transmit, berth, ref bytes } = *notice;
        let transmit = Transmit { may_resolve, ..transmit };
        self.send(&Arc::new(Frame { number, from, to, transmit, bytes: bytes.clone(), berth }))
    }
}

#[test]
fn notices_to_strangers_and_to_who_has_an_old_key_have_a_rate_each() {
    let (mut write, [request, _]) = Write::solicited();
    let burst = 256;
    for number in 1..=burst {
        let request = with_tag(&request, number);
        assert_eq!(write.tell(&request, DropReason::RequestUnauthenticated), Ok(()));
        assert_eq!(write.tell(&request, DropReason::OldKey), Ok(()));
    }
    for reason in [DropReason::UnknownRegion, DropReason::OldKey] {
        let found = write.tell(&with_tag(&request, 0), reason);
        assert!(matches!(found, Err(Violation::NoticesTooFast { per_second: 100_000, .. })));
    }
}

#[test]
fn a_request_that_is_told_of_its_old_key_twice_is_found() {
    let (mut write, [request, _]) = Write::solicited();
    assert_eq!(write.tell(&request, DropReason::OldKey), Ok(()));
    let found = write.tell(&request, DropReason::OldKey);
    assert!(matches!(found, Err(Violation::ToldTwice { .. })), "{found:?}");
    // A NIC remembers eight tags of one set.
    let other = |number: u64| with_tag(&request, number * 512 + 7);
    assert_eq!(write.tell(&other(0), DropReason::OldKey), Ok(()));
    (1..=8).for_each(|number| assert_eq!(write.tell(&other(number), DropReason::OldKey), Ok(())));
    assert_eq!(write.tell(&other(0), DropReason::OldKey), Ok(()));
}

/// Makes the packet by which [`Write::tell`] tells a stranger.
fn stranger_packet(write: &mut Write, request: &Arc<Frame>, frames: usize) -> Arc<Packet> {
    let status = OpStatus::RemoteAuthenticationFailure;
    let notice = write.notice(status, &DerivedRegionKey::RESERVED, request);
    let Frame { number, from, to, transmit, berth, ref bytes } = *notice;
    let transmit = Transmit { may_resolve: false, ..transmit };
    let notice = Arc::new(Frame { number, from, to, transmit, bytes: bytes.clone(), berth });
    let bytes = bytes.repeat(frames).into();
    let frames = core::iter::repeat_n(notice, frames).collect();
    Arc::new(Packet { number: 0, from, to, transmit, frames, bytes })
}

#[test]
fn a_packet_to_strangers_that_none_of_theirs_has_paid_for_is_found() {
    let (mut write, [request, _]) = Write::solicited();
    let left = |packet: &Arc<Packet>| What::Left {
        packet: packet.clone(),
        arrives: true,
        extra_copies: 0,
    };
    let packet = stranger_packet(&mut write, &request, 2);
    let unpaid = |found| matches!(found, Err(Violation::UnpaidPacket { .. }));
    assert!(unpaid(write.see(1, left(&packet))));
    // Two refused requests in one packet pay for one.
    let came = What::Came { packet: packet.clone(), altered: None, extra: true };
    assert_eq!(write.see(1, came), Ok(()));
    for number in 1..=2 {
        let refused = with_tag(&request, number);
        assert_eq!(write.refuse(&refused, DropReason::RequestUnauthenticated), Ok(()));
    }
    assert_eq!(write.see(1, left(&packet)), Ok(()));
    assert!(unpaid(write.see(1, left(&packet))));
}

#[test]
fn a_packet_of_too_many_frames_or_octets_or_of_some_that_go_elsewhere_is_found() {
    let (mut write, [request, _]) = Write::solicited();
    let left = |write: &mut Write, packet: Packet| {
        write.see(1, What::Left { packet: Arc::new(packet), arrives: true, extra_copies: 0 })
    };
    let of = |write: &mut Write, frames| {
        let packet = stranger_packet(write, &request, frames);
        Arc::into_inner(packet).expect("nobody else has it")
    };
    let wrong = |found| matches!(found, Err(Violation::WrongPacket { .. }));
    // 48 octets each: 32 are more than an MTU of 1500 carries, and 30 are not.
    for (frames, is_wrong) in [(0, true), (30, false), (31, true), (33, true)] {
        let packet = if frames > 0 {
            of(&mut write, frames)
        } else {
            let one = of(&mut write, 1);
            Packet { frames: Box::default(), bytes: Box::default(), ..one }
        };
        assert_eq!(wrong(left(&mut write, packet)), is_wrong, "{frames}");
    }
    let elsewhere = of(&mut write, 2);
    let destination = addr(9);
    let transmit = Transmit { destination, ..elsewhere.transmit };
    assert!(wrong(left(&mut write, Packet { transmit, ..elsewhere })));
}
