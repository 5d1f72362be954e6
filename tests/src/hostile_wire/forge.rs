//! Packets and frames that no host has sent, made by somebody who sees and keeps all that came by
//! and has no key.
//!
//! Invariant: nothing here knows a K_d or a K_r. What it seals, it seals under guessed keys or
//! under the reserved key, which everybody knows.

use std::collections::VecDeque;

use rma_core::{
    addr::Pid,
    command::CommandSlotId,
    crypto::{DerivedRegionKey, Direction, EngineId, Iv, fastest},
    limits::TAG_LEN,
    op::{ClassOfService, OpStatus, OpType},
    outcome::{Done, OpName, Verdict},
    port::SourcePort,
    region::RegionId,
    seal::{self, Sealed},
    wire::{
        self, Acknowledgement, AcknowledgementWithResult, Failure, FrameView, Header, Mutation,
        MutationRequest, RecordedRequest, Request, Response, SettleRequest, Settlement,
        Solicitation, SolicitedData,
        failure::{FAILURE_HEADER_LEN, FAILURE_LEN},
        mutation::{
            ACKNOWLEDGEMENT_HEADER_LEN, ACKNOWLEDGEMENT_LEN, DATA_HEADER_LEN, DATA_OVERHEAD,
            MUTATION_REQUEST_HEADER_LEN, MUTATION_REQUEST_LEN, SOLICITATION_HEADER_LEN,
            SOLICITATION_LEN,
        },
        read::{REQUEST_HEADER_LEN, REQUEST_LEN, RESPONSE_HEADER_LEN, RESPONSE_OVERHEAD},
        recorded::{
            RECORDED_REQUEST_HEADER_LEN, RECORDED_REQUEST_LEN, RESULT_HEADER_LEN, RESULT_LEN,
        },
        settle::{
            SETTLE_REQUEST_HEADER_LEN, SETTLE_REQUEST_LEN, SETTLEMENT_HEADER_LEN, SETTLEMENT_LEN,
        },
    },
};
use rma_crypto::{SealJob, Text};
use rma_sim::prng::Prng;

use super::{
    frame::{around, back, frames, payload},
    lab::End,
    repack::{Change, repack},
};

/// Frames kept of those that came by last.
const RECENT: usize = 256;
/// Frames kept of all that ever came by.
const EVER: usize = 2048;

/// Octets of fields in a 1RMA frame.
mod field {
    use core::ops::Range;
    pub(super) const FRAME_TYPE: usize = 1;
    pub(super) const PID: Range<usize> = 4..8;
    pub(super) const REGION: Range<usize> = 8..12;
    pub(super) const SLOT: Range<usize> = 12..14;
    pub(super) const GENERATION: Range<usize> = 16..20;
    pub(super) const COUNTER: Range<usize> = 20..28;
    /// Of the common header.
    pub(super) const END: usize = COUNTER.end;
}

/// A packet that came by.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The host it was sent to.
    pub toward: End,
    /// From the Ethernet header on.
    pub frame: Vec<u8>,
}

/// The packets that an attacker keeps: the latest packets, and some of all that ever came by.
#[derive(Debug, Default)]
pub struct Store {
    recent: VecDeque<Captured>,
    requests: VecDeque<Captured>,
    ever: Vec<Captured>,
    kept: u64,
}

impl Store {
    /// Keeps a packet to `port`. One with a request in it is kept with the requests.
    pub fn keep(&mut self, captured: Captured, port: u16, prng: &mut Prng) {
        self.kept += 1;
        let is_request = Seen::all(&captured.frame, port).any(|seen| seen.request().is_some());
        let list = if is_request { &mut self.requests } else { &mut self.recent };
        if list.len() == RECENT {
            list.pop_front();
        }
        // Each packet that ever came by is as likely as any other to be here.
        let place = prng.below(self.kept) as usize;
        if self.ever.len() < EVER {
            self.ever.push(captured.clone());
        } else if let Some(old) = self.ever.get_mut(place) {
            *old = captured.clone();
        }
        list.push_back(captured);
    }

    /// A packet that came by just now or, as likely, at any time.
    pub fn any(&self, prng: &mut Prng) -> Option<&Captured> {
        let list = prng.below(4);
        let at = |len: usize, prng: &mut Prng| prng.below(len as u64) as usize;
        match list {
            0 => self.recent.get(at(self.recent.len(), prng)),
            1 => self.requests.get(at(self.requests.len(), prng)),
            _ => self.ever.get(at(self.ever.len(), prng)),
        }
    }

    /// One of the latest requests, and the packet that it came in; one of the very latest packet,
    /// half of the time.
    fn request(&self, port: u16, prng: &mut Prng) -> Option<(Captured, Header, Vec<u8>)> {
        let back = prng.below(2) * prng.below(16);
        let captured = self.requests.iter().rev().nth(back as usize)?;
        let requests: Vec<_> = Seen::all(&captured.frame, port)
            .filter_map(|seen| Some((seen.request()?, seen.octets)))
            .collect();
        let (header, octets) = requests.get(prng.below(requests.len().max(1) as u64) as usize)?;
        Some((captured.clone(), *header, octets.clone()))
    }

    /// One of the latest solicitations, and the packet that it came in.
    fn solicitation(&self, port: u16, back: usize) -> Option<(Captured, Solicitation)> {
        let seen = self.recent.iter().rev().flat_map(|captured| {
            Seen::all(&captured.frame, port).map(move |seen| (captured, seen))
        });
        let mut solicitations = seen.filter_map(|(captured, seen)| match seen.view {
            FrameView::Solicitation(solicitation) => Some((captured, solicitation.claims())),
            _ => None,
        });
        solicitations.nth(back).map(|(captured, claims)| (captured.clone(), claims))
    }

    /// All that is kept of what ever came by, in the order in which it is kept.
    #[must_use]
    pub fn ever(&self) -> &[Captured] {
        &self.ever
    }
}

/// The claims of a frame that came by, and its tag.
struct Seen {
    view: FrameView,
    octets: Vec<u8>,
}

impl Seen {
    /// Those of a packet, in their order.
    fn all(frame: &[u8], port: u16) -> impl Iterator<Item = Self> {
        frames(frame, port)
            .into_iter()
            .filter_map(|octets| Some(Self { view: FrameView::parse(&octets).ok()?, octets }))
    }

    /// The header of a request, of any type.
    fn request(&self) -> Option<Header> {
        match self.view {
            FrameView::ReadRequest(request) => Some(request.claims().header),
            FrameView::MutationRequest(request) => Some(request.claims().header),
            FrameView::RecordedRequest(request) => Some(request.claims().header),
            FrameView::SettleRequest(request) => Some(request.claims().header),
            _ => None,
        }
    }
}

/// Makes frames that no host has sent, out of those that it has seen and of what everybody knows.
#[derive(Debug)]
pub struct Forger {
    prng: Prng,
    port: u16,
}

impl Forger {
    /// A forger of frames to `port` whose choices follow from `prng`.
    #[must_use]
    pub const fn new(prng: Prng, port: u16) -> Self {
        Self { prng, port }
    }

    /// A frame of some kind, made from what is kept; `None` as long as too little is.
    pub fn forge(&mut self, store: &Store) -> Option<Captured> {
        match self.prng.below(11) {
            0 => self.garbage(store),
            1 => self.any_fields(store),
            2 => self.altered(store),
            3 => self.readdressed(store),
            4 => self.spliced(store),
            5 => self.request_under_guessed_key(store),
            6 => self.refusal(store, OpStatus::RemoteOutOfBounds),
            7 => self.solicited_under_guessed_key(store),
            8 => self.repacked(store),
            9 => self.mixed(store),
            _ => self.answer_under_guessed_key(store),
        }
    }

    /// To the sender of one of the latest requests: what a responder sends that cannot authenticate
    /// it.
    pub fn refuse(&mut self, store: &Store) -> Option<Captured> {
        self.refusal(store, OpStatus::RemoteAuthenticationFailure)
    }

    fn octets(&mut self, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        self.prng.fill(&mut octets);
        octets
    }

    fn key(&mut self) -> DerivedRegionKey {
        let mut key = [0; 16];
        self.prng.fill(&mut key);
        let guesses = [DerivedRegionKey::RESERVED, DerivedRegionKey::from_bytes([0; 16])];
        let random = DerivedRegionKey::from_bytes(key);
        self.prng.choose(&[guesses[0], guesses[1], random, random])
    }

    fn like(&mut self, captured: &Captured, octets: &[u8]) -> Captured {
        let source_port = SourcePort(self.prng.next() as u16);
        let frame = around(&captured.frame, self.port, source_port, octets);
        Captured { toward: captured.toward, frame }
    }

    fn answer(&mut self, captured: &Captured, octets: &[u8]) -> Captured {
        let source_port = SourcePort(self.prng.next() as u16);
        let frame = back(&captured.frame, self.port, source_port, octets);
        Captured { toward: captured.toward.other(), frame }
    }

    /// One frame of a packet; or what is in its place, if there is none.
    fn frame_of(&mut self, captured: &Captured) -> Option<Vec<u8>> {
        let mut frames = frames(&captured.frame, self.port);
        if frames.is_empty() {
            return self.packet_of(captured);
        }
        let at = self.prng.below(frames.len() as u64) as usize;
        Some(frames.swap_remove(at))
    }

    fn packet_of(&self, captured: &Captured) -> Option<Vec<u8>> {
        payload(&captured.frame, self.port).map(|range| captured.frame[range].to_vec())
    }

    /// Changes a packet on its way: other frames at other places, and what is made up among them.
    pub fn change(&mut self, packet: &[u8], store: &Store) -> Vec<u8> {
        let other = self.forge(store).and_then(|forged| self.packet_of(&forged));
        let change = self.prng.choose(&Change::ALL);
        repack(packet, change, other.as_deref(), &mut self.prng)
    }

    /// A packet that came by, changed, with a frame of another among its own.
    fn repacked(&mut self, store: &Store) -> Option<Captured> {
        let like = store.any(&mut self.prng)?.clone();
        let other = store.any(&mut self.prng)?.clone();
        let (packet, other) = (self.packet_of(&like)?, self.frame_of(&other)?);
        let change = self.prng.choose(&Change::ALL);
        let octets = repack(&packet, change, Some(&other), &mut self.prng);
        Some(self.like(&like, &octets))
    }

    /// Frames of several packets that came by, whichever way they went: of all types and classes.
    fn mixed(&mut self, store: &Store) -> Option<Captured> {
        let like = store.any(&mut self.prng)?.clone();
        let mut octets = Vec::new();
        for _ in 0..self.prng.between(2, 32) {
            let other = store.any(&mut self.prng)?.clone();
            let frame = self.frame_of(&other)?;
            if octets.len() + frame.len() <= 1400 {
                octets.extend(frame);
            }
        }
        Some(self.like(&like, &octets))
    }

    /// Octets without meaning, sometimes behind the first two of a frame.
    fn garbage(&mut self, store: &Store) -> Option<Captured> {
        let like = store.any(&mut self.prng)?.clone();
        let len = self.prng.magnitude(1400) as usize;
        let mut octets = self.octets(len);
        if octets.len() > 2 && self.prng.below(2) == 0 {
            octets[0] = wire::VERSION;
            octets[field::FRAME_TYPE] %= 13;
        }
        Some(self.like(&like, &octets))
    }

    /// A frame whose fields all have defined values and no meaning.
    fn any_fields(&mut self, store: &Store) -> Option<Captured> {
        let like = store.any(&mut self.prng)?.clone();
        let header = Header {
            class: self.prng.choose(&ClassOfService::ALL),
            pid: Pid(self.prng.next() as u32),
            region: RegionId::from_bits(self.prng.below(1 << 18) as u32),
            slot: CommandSlotId(self.prng.below(64) as u16),
            generation: self.prng.below(1000) as u32,
            engine: EngineId(self.prng.below(2) as u16),
            counter: self.prng.next(),
        };
        let octets = match self.prng.below(5) {
            3 => {
                let mut out: [u8; RECORDED_REQUEST_LEN] =
                    *self.octets(RECORDED_REQUEST_LEN).first_chunk()?;
                let request = self.recorded(header);
                request.emit(out.first_chunk_mut().expect("it is longer"));
                out.to_vec()
            }
            4 => {
                let mut out: [u8; SETTLEMENT_LEN] = *self.octets(SETTLEMENT_LEN).first_chunk()?;
                let verdict = self.prng.choose(&Verdict::ALL);
                Settlement { header, verdict }.emit(out.first_chunk_mut().expect("it is longer"));
                out.to_vec()
            }
            0 => {
                let mut out: [u8; REQUEST_LEN] = *self.octets(REQUEST_LEN).first_chunk()?;
                let op_size = self.prng.between(1, 4096) as u16;
                let region_offset = self.prng.below(1 << 20);
                Request { header, region_offset, op_size, payload_len_max: 1424 }
                    .emit(out.first_chunk_mut().expect("it is longer"));
                out.to_vec()
            }
            1 => {
                let payload_len = self.prng.between(1, 1400) as u16;
                let op_offset = 64 * self.prng.below(40) as u16;
                let mut out = self.octets(RESPONSE_OVERHEAD + usize::from(payload_len));
                Response { header, op_offset, payload_len }.emit(out.first_chunk_mut()?);
                out
            }
            _ => {
                let mut out: [u8; FAILURE_LEN] = *self.octets(FAILURE_LEN).first_chunk()?;
                Failure { header, status: OpStatus::Nack }
                    .emit(out.first_chunk_mut().expect("it is longer"));
                out.to_vec()
            }
        };
        Some(self.like(&like, &octets))
    }

    /// A frame that came by with some octets changed, and a tag of its own or a random one.
    fn altered(&mut self, store: &Store) -> Option<Captured> {
        let like = store.any(&mut self.prng)?.clone();
        let mut octets = self.frame_of(&like)?;
        for _ in 0..self.prng.below(4) {
            let at = self.prng.below(octets.len().min(44) as u64) as usize;
            octets[at] ^= 1 << self.prng.below(8);
        }
        if self.prng.below(2) == 0
            && let Some(tag) = octets.last_chunk_mut::<TAG_LEN>()
        {
            self.prng.fill(tag);
        }
        Some(self.like(&like, &octets))
    }

    /// A frame that came by, with the slot, generation and region of another op, one that may be in
    /// service.
    fn readdressed(&mut self, store: &Store) -> Option<Captured> {
        let like = store.any(&mut self.prng)?.clone();
        let (_, _, op) = store.request(self.port, &mut self.prng)?;
        let mut octets = self.frame_of(&like)?;
        for range in [field::PID, field::REGION, field::SLOT, field::GENERATION] {
            octets.get_mut(range.clone())?.copy_from_slice(op.get(range)?);
        }
        if self.prng.below(2) == 0 {
            octets.get_mut(field::COUNTER)?.copy_from_slice(op.get(field::COUNTER)?);
        }
        Some(self.like(&like, &octets))
    }

    /// The header of one frame that came by before the body of another.
    fn spliced(&mut self, store: &Store) -> Option<Captured> {
        let head = store.any(&mut self.prng)?.clone();
        let body = store.any(&mut self.prng)?.clone();
        let (mut octets, body) = (self.frame_of(&head)?, self.frame_of(&body)?);
        let at = [field::END, RESPONSE_HEADER_LEN, REQUEST_HEADER_LEN];
        let at = self.prng.choose(&at).min(octets.len()).min(body.len());
        octets.truncate(at);
        octets.extend(&body[at..]);
        Some(self.like(&head, &octets))
    }

    /// A request that is right in everything, under a key that is not.
    fn request_under_guessed_key(&mut self, store: &Store) -> Option<Captured> {
        let (like, header, _) = store.request(self.port, &mut self.prng)?;
        let header = Header { counter: header.counter + self.prng.below(1000), ..header };
        let op_size = self.prng.between(1, 4096) as u16;
        let region_offset = self.prng.below(4096);
        let octets = match self.prng.below(5) {
            3 => {
                let request = self.recorded(header);
                let mut octets = self.octets(RECORDED_REQUEST_LEN);
                request.emit(octets.first_chunk_mut()?);
                let iv = header.iv(Direction::ToResponder);
                seal(&self.key(), iv, RECORDED_REQUEST_HEADER_LEN, &[], &mut octets);
                octets
            }
            4 => {
                // It names an op that there may be.
                let name = self.name(store);
                let op_type = self.prng.choose(&[OpType::Write, OpType::FetchAdd]);
                let mut octets = [0; SETTLE_REQUEST_LEN];
                SettleRequest { header, op_type, name }
                    .emit(octets.first_chunk_mut().expect("it is longer"));
                let iv = header.iv(Direction::ToResponder);
                seal(&self.key(), iv, SETTLE_REQUEST_HEADER_LEN, &[], &mut octets);
                octets.to_vec()
            }
            0 => {
                let request = Request { header, region_offset, op_size, payload_len_max: 1424 };
                seal_request(&self.key(), &request).to_vec()
            }
            write => {
                let mutation = [Mutation::Write { region_offset, op_size }, Mutation::Rekey]
                    [write as usize - 1];
                let request = MutationRequest { header, mutation, timeout_micros: u32::MAX };
                seal_mutation_request(&self.key(), &request).to_vec()
            }
        };
        Some(self.like(&like, &octets))
    }

    /// A recorded request whose fields all have defined values.
    fn recorded(&mut self, header: Header) -> RecordedRequest {
        let region_offset = 8 * self.prng.below(512);
        let op_size = 8 * self.prng.between(1, 512) as u16;
        let mutation = self.prng.choose(&[
            Mutation::OrderedWrite { region_offset, op_size },
            Mutation::Send { op_size },
            Mutation::WriteWithImm { region_offset, op_size, ordered: true },
            Mutation::Notify,
            Mutation::CompareSwap { region_offset },
            Mutation::FetchAdd { region_offset },
        ]);
        let counter = self.prng.between(1, u64::MAX - 1);
        let done = Some(Done { counter, number: self.prng.next() as u16 });
        RecordedRequest { header, mutation, timeout_micros: u32::MAX, done }
    }

    /// The name of an op that was solicited lately, if one was.
    fn name(&mut self, store: &Store) -> OpName {
        let back = self.prng.below(4) as usize;
        match store.solicitation(self.port, back) {
            Some((_, Solicitation { header, pending, .. })) => {
                OpName { engine: header.engine, counter: header.counter, number: pending }
            }
            None => OpName { engine: EngineId(0), counter: self.prng.next(), number: 0 },
        }
    }

    /// A response, a solicitation or a settlement to one of the latest requests, bound to it, under
    /// a guessed key.
    fn answer_under_guessed_key(&mut self, store: &Store) -> Option<Captured> {
        let (like, header, _) = store.request(self.port, &mut self.prng)?;
        let answered = header.iv(Direction::ToResponder);
        let header = Header { counter: header.counter + self.prng.below(1000), ..header };
        let iv = header.iv(Direction::ToInitiator);
        let what = self.prng.below(3);
        let octets = if what == 2 {
            let mut octets = self.octets(SETTLEMENT_LEN);
            let verdict = self.prng.choose(&Verdict::ALL);
            Settlement { header, verdict }.emit(octets.first_chunk_mut()?);
            seal(&self.key(), iv, SETTLEMENT_HEADER_LEN, answered.octets(), &mut octets);
            octets
        } else if what == 0 {
            let payload_len = self.prng.between(1, 1400) as u16;
            let mut octets = self.octets(RESPONSE_OVERHEAD + usize::from(payload_len));
            Response { header, op_offset: 0, payload_len }.emit(octets.first_chunk_mut()?);
            seal(&self.key(), iv, RESPONSE_HEADER_LEN, answered.octets(), &mut octets);
            octets
        } else {
            let mut octets = [0; SOLICITATION_LEN];
            let pending = self.prng.below(32) as u16;
            Solicitation { header, pending, payload_len_max: 1424 }
                .emit(octets.first_chunk_mut().expect("it is longer"));
            seal(&self.key(), iv, SOLICITATION_HEADER_LEN, answered.octets(), &mut octets);
            octets.to_vec()
        };
        Some(self.answer(&like, &octets))
    }

    /// Data or an acknowledgement, with a result or without, for one of the latest solicitations,
    /// bound to it, under a guessed key.
    fn solicited_under_guessed_key(&mut self, store: &Store) -> Option<Captured> {
        let back = self.prng.below(4) as usize;
        let (like, solicitation) = store.solicitation(self.port, back)?;
        let Solicitation { header, pending, .. } = solicitation;
        let answered = header.iv(Direction::ToInitiator);
        let header = Header { counter: header.counter + self.prng.below(1000), ..header };
        let what = self.prng.below(3);
        if what == 2 {
            let mut octets = self.octets(RESULT_LEN);
            AcknowledgementWithResult { header }.emit(octets.first_chunk_mut()?);
            let iv = header.iv(Direction::ToInitiator);
            seal(&self.key(), iv, RESULT_HEADER_LEN, answered.octets(), &mut octets);
            Some(self.like(&like, &octets))
        } else if what == 0 {
            let payload_len = self.prng.between(1, 1400) as u16;
            let mut octets = self.octets(DATA_OVERHEAD + usize::from(payload_len));
            SolicitedData { header, pending, op_offset: 0, payload_len }
                .emit(octets.first_chunk_mut()?);
            let iv = header.iv(Direction::ToResponder);
            seal(&self.key(), iv, DATA_HEADER_LEN, answered.octets(), &mut octets);
            Some(self.answer(&like, &octets))
        } else {
            let mut octets = [0; ACKNOWLEDGEMENT_LEN];
            let status = self.prng.choose(&[OpStatus::Ok, OpStatus::RemoteAuthenticationFailure]);
            Acknowledgement { header, status }
                .emit(octets.first_chunk_mut().expect("it is longer"));
            let iv = header.iv(Direction::ToInitiator);
            seal(&self.key(), iv, ACKNOWLEDGEMENT_HEADER_LEN, answered.octets(), &mut octets);
            Some(self.like(&like, &octets))
        }
    }

    /// A failure notice for one of the latest requests, sealed under the reserved key.
    fn refusal(&mut self, store: &Store, status: OpStatus) -> Option<Captured> {
        let (like, header, request) = store.request(self.port, &mut self.prng)?;
        let tag = &request[request.len() - TAG_LEN..];
        let answered = [header.iv(Direction::ToResponder).octets(), tag].concat();
        let header = Header { counter: self.prng.next(), ..header };
        let mut octets = [0; FAILURE_LEN];
        Failure { header, status }.emit(octets.first_chunk_mut().expect("it is longer"));
        let iv = header.iv(Direction::ToInitiator);
        seal(&DerivedRegionKey::RESERVED, iv, FAILURE_HEADER_LEN, &answered, &mut octets);
        Some(self.answer(&like, &octets))
    }
}

/// A read request as whoever has `key` would send it.
#[must_use]
pub fn seal_request(key: &DerivedRegionKey, request: &Request) -> [u8; REQUEST_LEN] {
    let mut octets = [0; REQUEST_LEN];
    request.emit(octets.first_chunk_mut().expect("it is longer"));
    seal(key, request.header.iv(Direction::ToResponder), REQUEST_HEADER_LEN, &[], &mut octets);
    octets
}

/// A request of a mutation as whoever has `key` would send it.
#[must_use]
pub fn seal_mutation_request(
    key: &DerivedRegionKey,
    request: &MutationRequest,
) -> [u8; MUTATION_REQUEST_LEN] {
    let mut octets = [0; MUTATION_REQUEST_LEN];
    request.emit(octets.first_chunk_mut().expect("it is longer"));
    let iv = request.header.iv(Direction::ToResponder);
    seal(key, iv, MUTATION_REQUEST_HEADER_LEN, &[], &mut octets);
    octets
}

/// Seals a frame whose header is written, with what it answers behind the header in the AAD.
fn seal(key: &DerivedRegionKey, iv: Iv, header_len: usize, answered: &[u8], frame: &mut [u8]) {
    let Sealed { header, payload, tag } =
        seal::split(frame, header_len).expect("the caller made room for the whole frame");
    let (key, iv, text) = (key.as_key().into(), *iv.octets(), Text::in_place(payload));
    let aad = [header, answered].concat();
    fastest().seal(&mut [SealJob { key, iv, aad: &aad, text, tag }]);
}
