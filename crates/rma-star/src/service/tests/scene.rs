//! A stateless side with one connection, and the other side of it made by hand: it seals what it
//! likes, and opens what comes.

use super::*;

pub(super) const Z: [u8; 4] = [192, 0, 2, 1];
pub(super) const F: [u8; 4] = [192, 0, 2, 2];
pub(super) const QPN_F: u32 = 77;
pub(super) const NONCE: u32 = 5;

/// The tenant that its application is.
pub(super) const TENANT: TenantIndex = TenantIndex::of(7);

/// W of these hosts, in microseconds.
pub(super) const W: u64 = 16_000;

/// A stateless side with one connection, its application, and the other side of it.
pub(super) struct Scene {
    pub(super) star: Star,
    pub(super) application: StarPortal,
    pub(super) memory: Arc<Region>,
    pub(super) mr: MrId,
    pub(super) key: FrameKey,
    pub(super) connection: ConnectionName,
    pub(super) now: Instant,
    pub(super) counter: u64,
}

/// A frame that was opened.
pub(super) struct Opened {
    pub(super) view: FrameView,
    pub(super) payload: Vec<u8>,
}

pub(super) fn address(octets: [u8; 4]) -> HostAddr {
    octets.into()
}

impl Scene {
    pub(super) fn new() -> Self {
        Self::with(StarConfigBuilder::default())
    }

    pub(super) fn with(settings: StarConfigBuilder) -> Self {
        let config = settings.build(StarPlace::at(address(Z))).unwrap();
        let mut star = Star::new(config, CounterBlock::new(0, u64::MAX));
        let (mut application, mut port) = portal(8, 2).unwrap();
        port.set_tenant(TENANT);
        let number = star.attach(port).unwrap();
        let pd = star.alloc_pd(number, &PdKey::from_bytes([9; 16])).unwrap();
        let memory = Arc::new(Region::new(1 << 16).unwrap());
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = star.reg_mr(number, pd, Arc::clone(&memory), 0..1 << 16, all).unwrap();
        let record = QpRecord {
            peer: address(F),
            pd: pd.0,
            local_pd: pd.0,
            z_clock: 0,
            peer_qpn: QPN_F,
            nonce: NONCE,
            era: 1,
            packet_len_max: 1472,
            key: [0; 16],
        };
        application.set_record(1, &record);
        application.post(&Post::Open { qp: 1, is_stateful: false }, None).unwrap();
        let now = Instant::from_nanos(3_600_000_000_000);
        assert_eq!(star.take_commands(now), 1);
        let Some(Report::Opened { qp: 1, status: WcStatus::Success, key, clock, .. }) =
            application.poll()
        else {
            panic!("the connection is open");
        };
        assert_eq!(clock, z_time(now).0);
        let connection = ConnectionName {
            pd,
            qpn_z: Qpn::new(number.into(), 1).unwrap(),
            qpn_f: Qpn::from_bits(QPN_F),
            nonce: Nonce(NONCE),
            era: Era(1),
        };
        let key = FrameKey::from_bytes(key);
        Self { star, application, memory, mr, key, connection, now, counter: 0 }
    }

    pub(super) fn wqe(&self, op: WqeOp, slot: u32, offset: u64, length: u32) -> Posted {
        Posted {
            slot,
            generation: 1,
            qp: 1,
            sequence: 0,
            open_before: 0,
            op,
            again: false,
            is_moved: false,
            immediate: None,
            inline_len: 0,
            mr: self.mr.0,
            offset,
            length,
            remote_mr: 0,
            remote_offset: 0,
        }
    }

    /// Returns the frames that the stateless side sends now, as they are on the wire.
    pub(super) fn transmit(&mut self) -> Vec<Vec<u8>> {
        self.star.take_commands(self.now);
        let mut buffers = vec![[0_u8; 4200]; 16];
        let mut frames: Vec<_> = buffers.iter_mut().map(|it| TxFrame::new(it)).collect();
        let mut quantum = Quantum::new(1 << 20);
        let count = self.star.poll_transmits(self.now, &mut frames, &mut quantum);
        let sent: Vec<_> = frames[..count].iter().map(|it| it.transmit.unwrap()).collect();
        for transmit in &sent {
            assert_eq!((transmit.destination, transmit.port), (address(F), STATEFUL_PORT));
            assert_eq!(transmit.tenant, TENANT);
        }
        sent.iter().zip(&buffers).map(|(sent, octets)| octets[..sent.len].to_vec()).collect()
    }

    /// Opens a frame of the stateless side, as one that answers the frame that is named.
    pub(super) fn open(&self, key: &FrameKey, frame: &[u8], answers: Option<&[u8]>) -> Opened {
        let view = FrameView::parse(frame).unwrap();
        assert_eq!(view.sender(), Side::Stateless);
        let time = view.header().time.widen(z_time(self.now));
        let (header, rest) = frame.split_at(view.header_len());
        let (payload, tag) = rest.split_last_chunk::<TAG_LEN>().unwrap();
        let mut payload = payload.to_vec();
        let aad = match answers {
            None => [header, &aad::tail(time)].concat(),
            Some(answered) => {
                let iv = FrameView::parse(answered).unwrap().iv();
                [header, &aad::answer_tail(time, &iv)].concat()
            }
        };
        let mut jobs = [OpenJob {
            key: key.as_key().into(),
            iv: *view.iv().octets(),
            aad: &aad,
            text: Text::in_place(&mut payload),
            tag,
            authentic: false,
        }];
        rma_crypto::fastest().open(&mut jobs);
        assert!(jobs[0].authentic, "{view:?}");
        Opened { view, payload }
    }

    /// The only frame that is sent, opened.
    pub(super) fn sent(&mut self, key: &FrameKey, answers: Option<&[u8]>) -> Opened {
        let frames = self.transmit();
        assert_eq!(frames.len(), 1);
        self.open(key, &frames[0], answers)
    }

    pub(super) fn header(&mut self) -> Header {
        self.counter += 1;
        Header {
            connection: self.connection,
            phase: KeyPhase::Even,
            engine: EngineId(3),
            counter: self.counter,
            time: crate::clock::ZTime(z_time(self.now).0 + W).low(),
        }
    }

    /// Seals a frame of the stateful side.
    pub(super) fn seal(&self, key: &FrameKey, header: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut frame = [header, payload, &[0; TAG_LEN]].concat();
        let view = FrameView::parse(&frame).unwrap();
        let expiry = view.header().time.widen(z_time(self.now));
        let aad = [header, &aad::tail(expiry)].concat();
        let (text, tag) = frame[header.len()..].split_last_chunk_mut::<TAG_LEN>().unwrap();
        let mut jobs = [SealJob {
            key: key.as_key().into(),
            iv: *view.iv().octets(),
            aad: &aad,
            text: Text::in_place(text),
            tag,
        }];
        rma_crypto::fastest().seal(&mut jobs);
        frame
    }

    /// Hands a frame to the stateless side, as it comes from `source` to `port`.
    pub(super) fn receive_from(&mut self, source: [u8; 4], port: Port, frame: &[u8]) {
        let mut bytes = frame.to_vec();
        let packet = RxPacket {
            source: address(source),
            destination: address(Z),
            port,
            source_port: SourcePort::FIRST,
            reply_len_max: 4096,
            link: None,
            bytes: &mut bytes,
        };
        let now = self.now;
        self.star.handle_frames(now, &now, &mut [RxFrame::alone(packet)]);
    }

    pub(super) fn receive(&mut self, frame: &[u8]) {
        self.receive_from(F, STATELESS_PORT, frame);
    }

    pub(super) fn guide(&mut self, wqe: &Wqe, op: WqeOp, chunk: (u32, u16)) -> Guide {
        Guide {
            header: self.header(),
            op,
            slot: wqe.slot,
            generation: wqe.generation,
            mr: wqe.mr,
            mr_offset: wqe.mr_offset,
            wqe_len: wqe.len,
            chunk_offset: chunk.0,
            chunk_len: chunk.1,
            sequence: wqe.sequence,
            copy: 0,
        }
    }

    pub(super) fn rd(&mut self, wqe: &Wqe, at: u32, chunk: &[u8]) -> Vec<u8> {
        let guide = self.guide(wqe, WqeOp::Recv, (at, chunk.len() as u16));
        let mut header = [0; GUIDE_HEADER_LEN];
        Rd { guide, wants_answer: true, completes: false }.emit(&mut header);
        self.seal(&wqe.key, &header, chunk)
    }

    pub(super) fn gd(&mut self, wqe: &Wqe, at: u32, len: u16) -> Vec<u8> {
        let guide = self.guide(wqe, WqeOp::Send, (at, len));
        let mut header = [0; GUIDE_HEADER_LEN];
        Gd { guide }.emit(&mut header);
        self.seal(&wqe.key, &header, &[])
    }

    pub(super) fn cqep(&mut self, cqes: &[Cqe]) -> Vec<u8> {
        self.cqep_that(true, (0, 0), cqes)
    }

    /// The same, which says what is taken as well.
    pub(super) fn cqep_that(
        &mut self,
        wants_answer: bool,
        (send, recv): (u32, u32),
        cqes: &[Cqe],
    ) -> Vec<u8> {
        let (header, count) = (self.header(), cqes.len() as u8);
        let mut octets = [0; WORK_HEADER_LEN];
        Cqep { header, count, wants_answer, state_number: 0, state_parts: 0 }.emit(&mut octets);
        let taken = Taken { send: Sequence(send), recv: Sequence(recv) };
        let mut entries = vec![[0; CQE_LEN]; cqes.len()];
        entries.iter_mut().zip(cqes).for_each(|(out, cqe)| cqe.emit(out));
        let key = self.key;
        self.seal(&key, &octets, &[&taken.to_octets(), entries.as_flattened()].concat())
    }

    /// A write of the stateful side into the memory region.
    pub(super) fn write(&mut self, key: &FrameKey, mr: MrId, at: u64, data: &[u8]) -> Vec<u8> {
        let guide = Guide {
            header: self.header(),
            op: WqeOp::Write,
            slot: Slot::NONE,
            generation: Generation(0),
            mr,
            mr_offset: at,
            wqe_len: data.len() as u32,
            chunk_offset: 0,
            chunk_len: data.len() as u16,
            sequence: Sequence(0),
            copy: 0,
        };
        let mut header = [0; GUIDE_HEADER_LEN];
        Rd { guide, wants_answer: true, completes: false }.emit(&mut header);
        self.seal(key, &header, data)
    }

    /// Returns the rule that the stateless side gives the stateful one for a memory region.
    pub(super) fn rule(&mut self, mr: MrId) -> Rule {
        let header = self.header();
        let state = State {
            header,
            sender: Side::Stateful,
            kind: StateKind::Ask,
            number: 4,
            part: 0,
            of: 1,
            payload_len: ASK_LEN as u16,
        };
        let mut octets = [0; STATE_HEADER_LEN];
        state.emit(&mut octets);
        let key = self.key;
        let ask = self.seal(&key, &octets, &told::ask(mr));
        self.receive(&ask);
        Rule::parse(&self.sent(&key, None).payload).unwrap()
    }

    /// Posts a work request and returns what the stateful side is told of it.
    pub(super) fn posted(&mut self, posted: Posted) -> Wqe {
        self.application.post(&Post::Wqe(posted), None).unwrap();
        let key = self.key;
        let told = self.sent(&key, None);
        let FrameView::Wqep(wqep) = told.view else { panic!("{:?}", told.view) };
        let mut wqes = wqep.claims().wqes(&told.payload);
        wqes.next().unwrap().unwrap().0
    }

    pub(super) fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.copy_out(at, &mut bytes).unwrap();
        bytes
    }

    /// Returns the answer to `frame` in the only frame sent, apart from those that tell of an end.
    pub(super) fn answer_to(&mut self, key: &FrameKey, frame: &[u8]) -> Answer {
        let mut frames = self.transmit();
        frames.retain(|sent| {
            !matches!(FrameView::parse(sent).unwrap(), FrameView::State(state)
                if state.claims().kind == StateKind::Close)
        });
        assert_eq!(frames.len(), 1);
        match FrameView::parse(&frames[0]).unwrap() {
            FrameView::Rda(_) | FrameView::Gda(_) => {
                match self.open(key, &frames[0], Some(frame)).view {
                    FrameView::Rda(rda) => rda.claims().0.answer,
                    FrameView::Gda(gda) => gda.claims().answer.answer,
                    view => panic!("{view:?}"),
                }
            }
            _ => {
                let ea = self.open(&self.key, &frames[0], None);
                EaOfZ::entries(&ea.payload).next().unwrap().unwrap().answer
            }
        }
    }

    pub(super) fn drops(&self, reason: StarDrop) -> u64 {
        self.star.counters().drops(reason)
    }
}

pub(super) fn cqe(wqe: &Wqe, op: WqeOp, byte_len: u32) -> Cqe {
    let (slot, generation, sequence) = (wqe.slot, wqe.generation, wqe.sequence);
    let (status, immediate) = (WcStatus::Success, None);
    let is_of_write = false;
    Cqe { slot, generation, sequence, byte_len, status, op, immediate, is_of_write }
}
