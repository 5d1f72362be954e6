//! Stateless processing (§III-C, IV-B2): the side that has very many connections, and whose engine
//! keeps nothing of any of them.
//!
//! A frame of the stateful side says all that is needed to do what it asks for and to answer it.
//! Its header names a protection domain, a connection, and what it opens; the engine derives from
//! these the key that only the frame's sender can have, if this host opened just that
//! ([`keys`](crate::keys)). Then it looks at the words of the slot and of the QP in the memory of
//! the application that has them ([`portal`](crate::portal)), and at the table of memory regions.
//!
//! | module | what it does |
//! |---|---|
//! | this | opens frames, and has them do what they may |
//! | `complete` | takes what is complete, and what has been taken |
//! | `answers` | keeps answers until the device has room, in a table of fixed size |
//! | `guard` | looks at the words of slots and QPs, and what they allow |
//! | `announce` | makes WQEPs of what applications post |
//! | `roles` | what is asked and told of connections, and changes of roles |
//! | `replay_filter` | keeps one-sided WRITEs from landing twice |
//!
//! Nothing here imports from stateful processing or from the library: that is the paper's claim.
//!
//! Invariants: nothing changes but by an authentic frame that has not expired; data lands only
//! while its work request and its connection are open, or, of a WRITE of the stateful side, once; a
//! completion is given once. What has had its effect will be answered, if an answer is wanted:
//! without room for it nothing happens.

mod announce;
mod answers;
mod complete;
mod guard;
mod replay_filter;
mod roles;

use arrayvec::ArrayVec;
use rma_core::{
    backend::{BATCH, RxFrame, TxFrame},
    limits::UNANNOUNCED_LEN_MAX,
    port::SourcePort,
    seal::{Authentic, FrameSet},
    time::{Clock, Instant},
};

use crate::{
    clock::ZTime,
    config::StarConfig,
    counters::{StarDrop, StarEvent},
    keys::{Binding, FrameKey, KeyMessage},
    mr_table::{Access, Refused},
    names::{Side, Slot},
    portal::Verdict,
    portals::Portals,
    sealer::{Batch, Sealer, expect},
    tables::{Tables, z_time},
    wire::{
        Answer, EaEntry, FrameView, Gd, Guide, Header, KeyPhase, Rd, data::GUIDE_HEADER_LEN,
        state::STATE_HEADER_LEN, work::WORK_HEADER_LEN,
    },
};
use answers::{Answers, Asker, What};
pub(crate) use guard::{close, may_be_taken_over, open};
use guard::{place_of, verdict_of};
use replay_filter::{Admitted, ReplayFilter};

//= star#II-D-zero-state
/// The engine's part of stateless processing.
#[derive(Debug)]
pub(crate) struct Stateless {
    batch: Batch,
    answers: Answers,
    filter: ReplayFilter,
    /// Answers that were sent since the last frame that tells of a post.
    in_a_row: u8,
    /// QPs, with their portals, whose state the peer has taken in the batch under way.
    given_away: ArrayVec<(u16, u32), BATCH>,
}

/// How many answers are sent before a frame that tells of a post, if both wait. Frames that come
/// make answers, and posts can wait in their portals: with fewer, answers have no room where as
/// many frames come as go; with more, who posts waits for longer beside them.
const ANSWERS_IN_A_ROW: u8 = 4;

/// The claims of a frame of a batch, and the key that it is opened with.
struct Seen {
    view: FrameView,
    binding: Binding,
    message: KeyMessage,
    /// When it expires.
    expiry: ZTime,
}

/// A frame whose tag was right, and what there is to know of how it came.
struct Came<'a, 'b> {
    seen: Authentic<&'a Seen>,
    key: FrameKey,
    frame: &'a RxFrame<'b>,
    now: Instant,
}

impl Came<'_, '_> {
    fn asker(&self, host: &Tables<'_>) -> Asker {
        let connection = self.seen.binding.connection;
        let is_of_connection = !matches!(self.seen.view, FrameView::Rd(_) | FrameView::Gd(_));
        Asker {
            key: self.key,
            is_of_connection,
            connection,
            tenant: host.tenant_of(connection.qpn_z.portal()),
            phase: self.seen.view.header().phase,
            f: self.frame.source,
            z: self.frame.destination,
            source_port: self.frame.source_port,
            reply_len_max: self.frame.reply_len_max,
            came_at: self.now,
        }
    }

    /// Its payload, opened.
    fn payload(&self) -> &[u8] {
        let (start, len) = (self.seen.view.header_len(), self.seen.view.payload_len());
        self.frame.bytes.get(start..start + len).unwrap_or_default()
    }
}

impl Stateless {
    pub(crate) fn new(config: &StarConfig) -> Self {
        let (settings, place) = (config.settings(), config.place());
        let entries = settings.filter_entries as usize;
        Self {
            batch: Batch::new(),
            answers: Answers::new(settings.answers as u16, place.secret),
            filter: ReplayFilter::new(entries, config.valid_micros(), place.secret),
            in_a_row: 0,
            given_away: ArrayVec::new(),
        }
    }

    /// Bytes that the tables take, however many connections there are.
    pub(crate) const fn memory(&self) -> usize {
        self.answers.memory() + self.filter.memory()
    }

    /// Takes frames that came to the port of stateless processing: at most a batch.
    pub(crate) fn handle_frames(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        clock: &impl Clock,
        frames: &mut [RxFrame<'_>],
    ) {
        let z_now = z_time(now);
        let mut all: ArrayVec<Option<Seen>, BATCH> = ArrayVec::new();
        let mut which = FrameSet::default();
        for (index, frame) in frames.iter().enumerate() {
            match look(host, frame, z_now) {
                Ok(seen) => {
                    self.expect(index, &seen, frame.bytes);
                    which.insert(index);
                    all.push(Some(seen));
                }
                Err(reason) => {
                    host.counters.drop_frame(reason);
                    all.push(None);
                }
            }
        }
        let derivations = all.iter().enumerate().filter_map(|(index, seen)| {
            let seen = seen.as_ref()?;
            let pd = host.pd_of(&seen.binding.connection)?;
            Some((index, seen.message.job(&pd.key)))
        });
        self.batch.derive(host.aead, derivations);
        let authentic = self.batch.open(host.aead, frames, which);
        for (index, (frame, seen)) in frames.iter().zip(&all).enumerate() {
            let Some(seen) = seen else { continue };
            let Some(tag) = authentic.right_tag(index) else {
                host.counters.drop_frame(StarDrop::Unauthenticated);
                continue;
            };
            let key = FrameKey::from_bytes(*self.batch.key(index).expose());
            let came = Came { seen: Authentic::new(seen, tag), key, frame, now };
            self.handle(host, clock, &came);
        }
        self.answers.end_batch();
    }

    /// A connection of this host whose state the peer has taken: stateful processing is to forget
    /// it. To be asked after each batch, until there is none.
    pub(crate) fn next_given_away(&mut self) -> Option<(u16, u32)> {
        self.given_away.pop()
    }

    //= star#ours-close
    /// An application ends the connection of a QP: from now on no frame of it has effect. The
    /// stateful side is told so once, if that has room, behind what it is answered. It need not
    /// find out by asking.
    pub(crate) fn close(&mut self, host: &mut Tables<'_>, now: Instant, portal: u16, qp: u32) {
        if let Some((binding, key)) = announce::open_connection(host, portal, qp) {
            let asker = Asker {
                key,
                is_of_connection: true,
                connection: binding.connection,
                tenant: host.tenant_of(portal.into()),
                phase: KeyPhase::Even,
                f: binding.f,
                z: binding.z,
                source_port: SourcePort::of_turn(now),
                reply_len_max: UNANNOUNCED_LEN_MAX.into(),
                came_at: now,
            };
            self.answers.push(asker, What::Close, host.config.settings().framing);
        }
        close(host, portal, qp);
    }

    /// Notes what a frame is opened with, but for its key.
    fn expect(&mut self, index: usize, seen: &Seen, frame: &[u8]) {
        let (batch, iv, time) = (&mut self.batch, seen.view.iv(), seen.expiry);
        match seen.view.header_len() {
            WORK_HEADER_LEN => expect::<WORK_HEADER_LEN>(batch, index, iv, frame, time),
            STATE_HEADER_LEN => expect::<STATE_HEADER_LEN>(batch, index, iv, frame, time),
            _ => expect::<GUIDE_HEADER_LEN>(batch, index, iv, frame, time),
        }
    }

    fn handle(&mut self, host: &mut Tables<'_>, clock: &impl Clock, came: &Came<'_, '_>) {
        match came.seen.view {
            FrameView::Rd(rd) => self.handle_rd(host, clock, came, rd.claims()),
            FrameView::Gd(gd) => self.handle_gd(host, came, gd.claims()),
            FrameView::Cqep(cqep) => self.handle_cqep(host, came, cqep.claims()),
            FrameView::EaOfF(_) => Self::handle_ea(host, came),
            FrameView::State(state) => self.handle_state(host, came, state.claims()),
            // `look` lets no others pass.
            _ => {}
        }
    }

    /// Whether the frame is in time. If not, its sender is told what time it is.
    fn is_in_time(&mut self, host: &Tables<'_>, came: &Came<'_, '_>, what: What) -> bool {
        let (now, expiry) = (z_time(came.now), came.seen.expiry);
        if now < expiry && expiry.0 - now.0 <= host.config.valid_micros() {
            return true;
        }
        host.counters.count(StarEvent::Expired);
        self.answer(host, came, what);
        false
    }

    /// Puts an answer into the queue. `false`, counted, if there is no room.
    fn answer(&mut self, host: &Tables<'_>, came: &Came<'_, '_>, what: What) -> bool {
        let framing = host.config.settings().framing;
        let has_room = self.answers.push(came.asker(host), what, framing);
        if !has_room {
            host.counters.drop_frame(StarDrop::NoRoom);
        }
        has_room
    }

    //= star#III-C3-receiving
    //= star#ours-guard-word
    //= star#ours-answers
    /// Data comes: it lands if its work request, or its memory region, takes it.
    fn handle_rd(
        &mut self,
        host: &mut Tables<'_>,
        clock: &impl Clock,
        came: &Came<'_, '_>,
        rd: Rd,
    ) {
        let guide = rd.guide;
        let says = |answer| rd_answer(came, &rd, answer);
        if !self.is_in_time(host, came, says(Answer::Clock)) {
            return;
        }
        // The answer if it has effect; nothing has effect that cannot be answered.
        if !self.answers.has_room(came.frame.source, &says(Answer::Done)) {
            host.counters.drop_frame(StarDrop::NoRoom);
            return;
        }
        let verdict = verdict_of(host, &guide);
        let access =
            if guide.slot == Slot::NONE { Access::REMOTE_WRITE } else { Access::LOCAL_WRITE };
        let (offset, len) = place_of(&guide);
        let answer = match verdict {
            Verdict::Gone => {
                host.counters.count(StarEvent::Gone);
                Answer::Gone
            }
            Verdict::Done => Answer::Done,
            Verdict::Open => {
                let pd = guide.header.connection.pd;
                let span = host.mrs.span(pd, guide.mr, access, offset, len);
                // No bytes need no memory: a message of none ends its RECV, whatever that has.
                match span.map(Some).or_else(|why| if len == 0 { Ok(None) } else { Err(why) }) {
                    Err(refused) => denied(host, refused),
                    Ok(span) => match self.admit(host, clock, came, &guide) {
                        Admitted::Again => return,
                        Admitted::Full => Answer::Busy,
                        Admitted::Fresh => {
                            let copied =
                                span.map(|span| span.memory.copy_in(span.offset, came.payload()));
                            debug_assert!(copied.is_none_or(|it| it.is_ok()), "it was looked at");
                            note_late(host, clock, came, &guide);
                            if rd.completes && !Self::complete_recv(host, &rd) {
                                return;
                            }
                            Answer::Done
                        }
                    },
                }
            }
        };
        self.answer(host, came, says(answer));
    }

    /// Whether a chunk that may land does so for the first time. Those of work requests of this
    /// host may land as often as they like, as long as these are open.
    //= star#ours-replay-filter
    fn admit(
        &mut self,
        host: &Tables<'_>,
        clock: &impl Clock,
        came: &Came<'_, '_>,
        guide: &Guide,
    ) -> Admitted {
        if guide.slot != Slot::NONE {
            return Admitted::Fresh;
        }
        // Read right before the copy, not at the start of the turn.
        let now = z_time(clock.now());
        if now >= came.seen.expiry {
            host.counters.count(StarEvent::Expired);
            return Admitted::Again;
        }
        let Some(tag) = came.frame.bytes.last_chunk() else { return Admitted::Again };
        let admitted = self.filter.admit(tag, came.seen.expiry.0, now.0);
        if admitted == Admitted::Again {
            host.counters.drop_frame(StarDrop::Again);
        }
        admitted
    }

    //= star#III-C3-sending
    /// Data is asked for: it is fetched when the answer is written.
    fn handle_gd(&mut self, host: &Tables<'_>, came: &Came<'_, '_>, gd: Gd) {
        let answered = came.seen.view.iv();
        let says = |answer| What::Chunk { guide: gd.guide, answered, answer, is_gd: true };
        if !self.is_in_time(host, came, says(Answer::Clock)) {
            return;
        }
        let answer = match verdict_of(host, &gd.guide) {
            Verdict::Done => return,
            Verdict::Gone => {
                host.counters.count(StarEvent::Gone);
                Answer::Gone
            }
            Verdict::Open => Answer::Done,
        };
        self.answer(host, came, says(answer));
    }

    /// About how many frames there are to send.
    pub(crate) fn frames_waiting(&self, portals: &Portals) -> usize {
        self.answers.len() + portals.frames_waiting()
    }

    /// Whether there are any.
    pub(crate) fn has_frames(&self, portals: &Portals) -> bool {
        self.answers.len() > 0 || portals.has_waiting()
    }

    /// Writes the next frame, to be sealed. Returns whether there was one. Answers and what
    /// applications have posted take turns. QPs of which `is_other` says so are not of stateless
    /// processing.
    pub(crate) fn write_next(
        &mut self,
        host: &mut Tables<'_>,
        sealer: &mut Sealer,
        now: Instant,
        out: &mut TxFrame<'_>,
        is_other: impl Fn(u16, u32) -> bool,
    ) -> bool {
        let answers_first = self.in_a_row < ANSWERS_IN_A_ROW;
        for answers in [answers_first, !answers_first] {
            let is_written = if answers {
                self.answers.write_next(host, sealer, now, out)
            } else {
                announce::write_next(host, sealer, now, out, &is_other)
            };
            if is_written {
                self.in_a_row = if answers { self.in_a_row.saturating_add(1) } else { 0 };
                return true;
            }
        }
        false
    }

    /// Whether answers can wait for more: there are no more than one batch of frames makes.
    pub(crate) const fn has_few_answers(&self) -> bool {
        self.answers.len() <= BATCH
    }
}

/// Returns the claims of a received frame, if there is a protection domain that it can be of.
fn look(host: &Tables<'_>, frame: &RxFrame<'_>, now: ZTime) -> Result<Seen, StarDrop> {
    let view = FrameView::parse(frame.bytes).map_err(|_malformed| StarDrop::Malformed)?;
    if view.sender() != Side::Stateful {
        return Err(StarDrop::WrongPort);
    }
    if !host.config.place.addresses.contains(frame.destination) {
        return Err(StarDrop::NotForThisHost);
    }
    let header = view.header();
    host.pd_of(&header.connection).ok_or(StarDrop::UnknownPd)?;
    let binding = Binding { connection: header.connection, f: frame.source, z: frame.destination };
    // Frames between two stateful sides do not come here.
    let message =
        view.key_message(&binding, |mr| host.mrs.name(mr)).ok_or(StarDrop::LateOrUnsolicited)?;
    Ok(Seen { view, binding, message, expiry: header.time.widen(now) })
}

/// Returns the answer to a peer that may not do that.
fn denied(host: &Tables<'_>, _: Refused) -> Answer {
    host.counters.count(StarEvent::Denied);
    Answer::Denied
}

/// Returns the answer to an RD: by an RDA, or together with others.
fn rd_answer(came: &Came<'_, '_>, rd: &Rd, answer: Answer) -> What {
    if rd.wants_answer {
        What::Chunk { guide: rd.guide, answered: came.seen.view.iv(), answer, is_gd: false }
    } else {
        ea_of(&rd.guide.header, 0, answer)
    }
}

const fn ea_of(header: &Header, taken: u32, answer: Answer) -> What {
    What::Ea(EaEntry { counter: header.counter, taken, answer })
}

/// Counts data of a WRITE of the stateful side that has landed although its frame had expired, as
/// this host was stopped between two readings of its clock (P2).
fn note_late(host: &Tables<'_>, clock: &impl Clock, came: &Came<'_, '_>, guide: &Guide) {
    if guide.slot == Slot::NONE && z_time(clock.now()) >= came.seen.expiry {
        host.counters.count(StarEvent::LateEffect);
    }
}
