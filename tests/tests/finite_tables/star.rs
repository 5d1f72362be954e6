//! S4: the engine of the stateless side of StaR keeps nothing of a connection. From the first to
//! the hundred thousandth it asks the allocator for nothing, and its tables are as large as with
//! one.

use core::num::NonZero;
use std::sync::Arc;

use rma_core::{
    addr::HostAddr,
    backend::{RxFrame, RxPacket, TxFrame},
    crypto::{CounterBlock, EngineId},
    limits::TAG_LEN,
    port::SourcePort,
    quantum::Quantum,
    service::Service,
    time::Instant,
};
use rma_crypto::{SealJob, Text, fastest};
use rma_lab::evidence;
use rma_star::{
    aad,
    clock::ZTime,
    config::{STATELESS_PORT, StarConfigBuilder, StarPlace},
    keys::{Binding, FrameKey, KeyMessage, PdKey, PdKeySchedule},
    mr_table::Access,
    names::{
        ConnectionName, Era, Generation, MrId, MrName, Nonce, PdId, Qpn, Sequence, Slot, Taken,
    },
    portal::{Post, Posted, QpRecord, Report, StarPortal, portal},
    service::Star,
    verbs::{WcStatus, WqeOp},
    wire::{
        Cqe, Cqep, FrameView, Guide, Header, KeyPhase, Rd, data::GUIDE_HEADER_LEN,
        entries::CQE_LEN, work::WORK_HEADER_LEN,
    },
};
use rma_xdp::Region;

use super::{Count, NOTHING, watch};

/// Connections of one portal, and its slots.
const CONNECTIONS: u32 = 10_000;

const HERE: [u8; 4] = [192, 0, 2, 1];

/// Bytes of a message.
const MESSAGE: u16 = 32;

/// W, in microseconds.
const VALID: u64 = 16_000;

/// The applications of a portal, and what their peers know of them.
struct Application {
    portal: StarPortal,
    number: u16,
    pd: PdId,
    mr: MrId,
    secret: PdKeySchedule,
}

impl Application {
    fn new(star: &mut Star, key: u8) -> Self {
        let (portal, port) = portal(CONNECTIONS, CONNECTIONS).unwrap();
        let number = star.attach(port).unwrap();
        let key = PdKey::from_bytes([key; 16]);
        let pd = star.alloc_pd(number, &key).unwrap();
        let memory = Arc::new(Region::new(usize::from(MESSAGE)).unwrap());
        let mr = star.reg_mr(number, pd, memory, 0..MESSAGE.into(), Access::LOCAL_WRITE).unwrap();
        Self { portal, number, pd, mr, secret: PdKeySchedule::new(fastest(), &key) }
    }

    /// The host of the peer of connection `qp`: no two are of one host.
    fn peer(&self, qp: u32) -> HostAddr {
        let [_, high, middle, low] = (u32::from(self.number) * CONNECTIONS + qp).to_be_bytes();
        [10, high, middle, low].into()
    }

    fn binding(&self, qp: u32) -> Binding {
        let connection = ConnectionName {
            pd: self.pd,
            qpn_z: Qpn::new(self.number.into(), qp).unwrap(),
            qpn_f: Qpn::from_bits(7),
            nonce: Nonce(1),
            era: Era(0),
        };
        Binding { connection, f: self.peer(qp), z: HERE.into() }
    }
}

/// Seals a frame of the stateful side.
fn seal(key: &FrameKey, header: &[u8], expiry: ZTime, payload: &[u8]) -> Vec<u8> {
    let mut frame = [header, payload, &[0; TAG_LEN]].concat();
    let iv = FrameView::parse(&frame).unwrap().iv();
    let aad = [header, &aad::tail(expiry)].concat();
    let (text, tag) = frame[header.len()..].split_last_chunk_mut::<TAG_LEN>().unwrap();
    let (key, iv) = (key.as_key().into(), *iv.octets());
    let mut jobs = [SealJob { key, iv, aad: &aad, text: Text::in_place(text), tag }];
    fastest().seal(&mut jobs);
    frame
}

/// A host that is the stateless side of all its connections, and what its engine has asked of the
/// allocator since it was made.
struct Host {
    star: Star,
    now: Instant,
    counter: u64,
    asked: Count,
    buffer: Box<[u8]>,
}

impl Host {
    fn transmit(&mut self) -> usize {
        let Self { star, now, asked, buffer, .. } = self;
        let mut frames = [TxFrame::new(buffer)];
        let mut quantum = Quantum::new(1 << 16);
        watch(asked, || {
            star.take_commands(*now);
            star.handle_timeout(*now);
            star.poll_transmits(*now, &mut frames, &mut quantum)
        })
    }

    fn receive(&mut self, source: HostAddr, mut octets: Vec<u8>) {
        let Self { star, now, asked, .. } = self;
        let packet = RxPacket {
            source,
            destination: HERE.into(),
            port: STATELESS_PORT,
            source_port: SourcePort::FIRST,
            reply_len_max: 1472,
            link: None,
            bytes: &mut octets,
        };
        watch(asked, || star.handle_frames(*now, &*now, &mut [RxFrame::alone(packet)]));
    }

    fn expiry(&self) -> ZTime {
        ZTime(self.now.as_nanos() / 1_000 + VALID)
    }

    fn header(&mut self, binding: &Binding) -> Header {
        self.counter += 1;
        Header {
            connection: binding.connection,
            phase: KeyPhase::Even,
            engine: EngineId(0),
            counter: self.counter,
            time: self.expiry().low(),
        }
    }

    /// Connection `qp` begins, and takes a message. Its slot stays closed, its connection open.
    fn serve(&mut self, application: &mut Application, qp: u32) {
        let binding = application.binding(qp);
        let record = QpRecord {
            peer: binding.f,
            pd: application.pd.0,
            local_pd: application.pd.0,
            peer_qpn: binding.connection.qpn_f.to_bits(),
            nonce: binding.connection.nonce.0,
            era: binding.connection.era.0,
            packet_len_max: 1472,
            key: [0; 16],
            z_clock: 0,
        };
        let recv = Posted {
            slot: qp,
            generation: 1,
            qp,
            sequence: 0,
            open_before: 0,
            op: WqeOp::Recv,
            again: false,
            is_moved: false,
            immediate: None,
            inline_len: 0,
            mr: application.mr.0,
            offset: 0,
            length: MESSAGE.into(),
            remote_mr: 0,
            remote_offset: 0,
        };
        application.portal.set_record(qp, &record);
        application.portal.post(&Post::Open { qp, is_stateful: false }, None).unwrap();
        application.portal.post(&Post::Wqe(recv), None).unwrap();
        // It has to be taken before there is a frame to be counted.
        assert_eq!(self.transmit() + self.transmit(), 1, "the WQEP of connection {qp}");
        let opened = application.portal.poll();
        assert!(matches!(opened, Some(Report::Opened { status: WcStatus::Success, .. })));
        let guide = Guide {
            header: self.header(&binding),
            op: WqeOp::Recv,
            slot: Slot(qp),
            generation: Generation(1),
            mr: application.mr,
            mr_offset: 0,
            wqe_len: MESSAGE.into(),
            chunk_offset: 0,
            chunk_len: MESSAGE,
            sequence: Sequence(0),
            copy: 0,
        };
        let mut header = [0; GUIDE_HEADER_LEN];
        Rd { guide, wants_answer: true, completes: false }.emit(&mut header);
        let message = guide.key_message(&binding, |mr| MrName(mr.0.into()));
        let message = message.expect("a work request of Z");
        let key = application.secret.derive(fastest(), &message);
        let rd = seal(&key, &header, self.expiry(), &[5; MESSAGE as usize]);
        let cqe = Cqe {
            slot: Slot(qp),
            generation: Generation(1),
            sequence: Sequence(0),
            byte_len: MESSAGE.into(),
            status: WcStatus::Success,
            op: WqeOp::Recv,
            immediate: None,
            is_of_write: false,
        };
        let mut header = [0; WORK_HEADER_LEN];
        let (state_number, state_parts) = (1, 1);
        let cqep_header = self.header(&binding);
        Cqep { header: cqep_header, count: 1, wants_answer: true, state_number, state_parts }
            .emit(&mut header);
        let mut entry = [0; CQE_LEN];
        cqe.emit(&mut entry);
        let taken = Taken { send: Sequence(0), recv: Sequence(1) };
        let key = application.secret.derive(fastest(), &KeyMessage::of_connection(&binding));
        let payload = [&taken.to_octets()[..], &entry].concat();
        let cqep = seal(&key, &header, self.expiry(), &payload);
        for frame in [rd, cqep] {
            self.receive(binding.f, frame);
            assert_eq!(self.transmit(), 1, "the answer to connection {qp}");
        }
        let completed = application.portal.poll();
        assert!(
            matches!(completed, Some(Report::Completed { status: WcStatus::Success, .. })),
            "{completed:?} of connection {qp}"
        );
    }
}

//= star#II-D-zero-state
//= type=test
#[test]
fn the_stateless_side_keeps_nothing_of_100_000_connections() {
    const PORTALS: NonZero<u8> = NonZero::new(10).unwrap();
    let config = StarConfigBuilder::default().build(StarPlace::at(HostAddr::from(HERE))).unwrap();
    let star = Star::new(config, CounterBlock::new(0, u64::MAX));
    let mut host = Host {
        star,
        now: Instant::from_nanos(1_000_000_000),
        counter: 0,
        asked: NOTHING,
        buffer: vec![0; 1472].into_boxed_slice(),
    };
    let mut applications: Vec<_> =
        (0..PORTALS.get()).map(|number| Application::new(&mut host.star, number + 1)).collect();
    host.serve(&mut applications[0], 0);
    let of_one = host.star.stateless_memory();
    assert!(of_one > 0);
    for (at, application) in applications.iter_mut().enumerate() {
        for qp in u32::from(at == 0)..CONNECTIONS {
            host.serve(application, qp);
        }
    }
    assert_eq!((host.asked, host.star.stateless_memory()), (NOTHING, of_one));
    assert_eq!(host.star.stateful_connections(), 0);
    evidence::show(format_args!(
        "StaR, stateless side: {of_one} bytes of tables with 1 connection and with {}; the engine \
         asked the allocator for nothing",
        u32::from(PORTALS.get()) * CONNECTIONS
    ));
}
