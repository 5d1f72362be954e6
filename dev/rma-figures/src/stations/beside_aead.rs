//! The cost of a SEND to the stateless side for its engine, beside the AEAD calls for its frames.
//!
//! A batch of SENDs, each to a RECV of its own: the WQEPs that tell of the RECVs, the EAs that
//! acknowledge them, the data, and its EAs. The turns of Z's engine are timed, and in turns with
//! them the AEAD calls that its frames need alone: the same lengths, as many frames at a time as an
//! engine opens and seals side by side, each key derived once and together with the others of its
//! batch. Which frames these are is looked at in a batch before.

use arrayvec::ArrayVec;
use rma_core::{
    addr::HostAddr, backend::BATCH as SIDE_BY_SIDE, crypto::AeadProvider, limits::TAG_LEN,
    time::Clock,
};
use rma_crypto::{DeriveFrom, DeriveJob, IV_LEN, JobKey, Key, KeySchedule, OpenJob, SealJob, Text};
use rma_star::{
    aad::{ANSWER_TAIL_LEN, TAIL_LEN},
    keys::{Binding, KeyMessage, OpenSpan},
    names::{Generation, MrId, MrName, Slot},
    verbs::WqeOp,
    wire::FrameView,
};
use rma_xdp::time::TscClock;

use super::{Noted, Settings, Stations, Stepped, address, application::MESSAGE};
use crate::{
    scale::median,
    turn::{Keys, Side},
};

/// SENDs at once.
pub const BATCH: usize = 32;

/// Connections, where each SEND is on another one than those before it. Not a multiple of a batch.
const CONNECTIONS: u32 = 75;

/// Batches of each round.
const BATCHES: usize = 16;

/// The measurements.
#[derive(Clone, Copy, Debug)]
pub struct SendCost {
    /// The time that Z spends on a SEND, in nanoseconds.
    pub side: Side,
    /// Frames that Z received and sent for a batch, and keys that it derived for them.
    pub frames: usize,
    /// See there.
    pub keys: usize,
}

/// Measures `rounds` rounds, and takes the medians of the batches.
///
/// # Panics
/// If a SEND does not end well.
#[must_use]
pub fn measure(aead: &'static dyn AeadProvider, keys: Keys, rounds: usize) -> SendCost {
    let clock = TscClock::new();
    let connections = if keys == Keys::Many { CONNECTIONS } else { 1 };
    let mut stations = Stations::new(Settings::of(connections, aead), clock.clone());
    let mut batch = batches_of(connections);
    stations.noted = Some(Vec::new());
    stations.sends(&batch());
    let noted = stations.noted.take().unwrap_or_default();
    let mut calls = Calls::of(aead, &noted);
    let mut times: [Vec<f64>; 2] = Default::default();
    for round in 0..=rounds {
        for _ in 0..BATCHES {
            let before = stations.spent().stateless;
            stations.sends(&batch());
            let turn = stations.spent().stateless - before;
            let alone = calls.run(&clock);
            // The first round warms up.
            if round > 0 {
                times[0].push(turn as f64);
                times[1].push(alone as f64);
            }
        }
    }
    let [turn, aead] = times.map(|mut times| median(&mut times) / BATCH as f64);
    SendCost { side: Side { turn, aead }, frames: calls.frames(), keys: calls.keys() }
}

/// Runs as many batches and nothing else after they are set up, for a profiler: Z's turns are those
/// of `stateless_turn`.
///
/// # Panics
/// As [`measure`].
pub fn profile(aead: &'static dyn AeadProvider, keys: Keys, batches: u64) {
    let connections = if keys == Keys::Many { CONNECTIONS } else { 1 };
    let mut stations = Stations::new(Settings::of(connections, aead), Stepped::default());
    let mut batch = batches_of(connections);
    for _ in 0..batches {
        stations.sends(&batch());
    }
    assert_eq!(stations.mishaps(), 0, "no frame is lost here");
}

/// Returns the connections that the SENDs of each batch are on.
fn batches_of(connections: u32) -> impl FnMut() -> Vec<u32> {
    let mut next = 0;
    move || {
        next += BATCH as u32;
        (next - BATCH as u32..next).map(|at| at % connections).collect()
    }
}

/// A frame on a wire, and its other end.
type Carried = (HostAddr, Vec<u8>);

/// A key that needs no derivation.
static KNOWN: Key = Key::from_bytes([5; 16]);

/// A frame, and what its AAD and payload are.
struct Frame {
    aad: Vec<u8>,
    /// Sealed, of one that is opened.
    payload: Vec<u8>,
    text: Vec<u8>,
    tag: [u8; TAG_LEN],
    /// The index of its key among the group's; `None` if it is known already.
    key: Option<usize>,
}

/// Frames side by side, and the messages that keys are derived from for them.
struct Group {
    is_received: bool,
    messages: Vec<Vec<u8>>,
    keys: Vec<Key>,
    frames: Vec<Frame>,
}

/// The AEAD calls of a batch.
struct Calls {
    aead: &'static dyn AeadProvider,
    schedule: KeySchedule,
    groups: Vec<Group>,
}

impl Calls {
    fn of(aead: &'static dyn AeadProvider, noted: &[Noted]) -> Self {
        let schedule = aead.schedule(&Key::from_bytes([3; 16]));
        let mut groups = Vec::new();
        for Noted { received, sent } in noted {
            for (is_received, frames) in [(true, received), (false, sent)] {
                for frames in frames.chunks(SIDE_BY_SIDE) {
                    groups.push(Group::of(is_received, frames, received));
                }
            }
        }
        let mut calls = Self { aead, schedule, groups };
        calls.groups.iter_mut().for_each(|group| group.prepare(aead, &calls.schedule));
        calls
    }

    fn frames(&self) -> usize {
        self.groups.iter().map(|group| group.frames.len()).sum()
    }

    fn keys(&self) -> usize {
        self.groups.iter().map(|group| group.keys.len()).sum()
    }

    /// All calls of a batch: nanoseconds.
    fn run(&mut self, clock: &TscClock) -> u64 {
        let Self { aead, schedule, groups } = self;
        for frame in groups.iter_mut().flat_map(|group| &mut group.frames) {
            frame.text.copy_from_slice(&frame.payload);
        }
        let start = clock.now();
        for group in groups {
            group.derive(*aead, schedule);
            if group.is_received { group.open(*aead) } else { group.seal(*aead) }
        }
        clock.now().nanos_since(start)
    }
}

impl Group {
    /// Of frames of a turn in which `received` came.
    fn of(is_received: bool, frames: &[Carried], received: &[Carried]) -> Self {
        let mut group =
            Self { is_received, messages: Vec::new(), keys: Vec::new(), frames: Vec::new() };
        for (peer, octets) in frames {
            let view = FrameView::parse(octets).expect("a frame of an engine");
            let binding =
                Binding { connection: view.header().connection, f: *peer, z: address(None) };
            // An answer is under the key of the frame that it answers, but for EAs of data.
            let message = view
                .key_message(&binding, |mr| MrName(mr.0.into()))
                .filter(|_| !matches!(view, FrameView::EaOfZ(_)) || !has_cqep(received, &view));
            let key = message.map(|message| {
                group.messages.push(message.octets().to_vec());
                group.messages.len() - 1
            });
            let mut tail = TAIL_LEN;
            match view {
                // The key of each work request that it tells of.
                FrameView::Wqep(wqep) => {
                    let message = wqe_message(&binding);
                    let count = usize::from(wqep.claims().count);
                    group.messages.extend((0..count).map(|_| message.octets().to_vec()));
                }
                FrameView::Rda(_) | FrameView::Gda(_) => tail = ANSWER_TAIL_LEN,
                _ => {}
            }
            let payload = octets[view.header_len()..octets.len() - TAG_LEN].to_vec();
            let aad = [&octets[..view.header_len()], &vec![0; tail]].concat();
            let text = payload.clone();
            group.frames.push(Frame { aad, payload, text, tag: [0; TAG_LEN], key });
        }
        group.keys = group.messages.iter().map(|_| Key::default()).collect();
        group
    }

    /// Seals the frames to open.
    fn prepare(&mut self, aead: &dyn AeadProvider, schedule: &KeySchedule) {
        self.derive(aead, schedule);
        if self.is_received {
            self.seal(aead);
            self.frames.iter_mut().for_each(|frame| frame.payload.clone_from(&frame.text));
        }
    }

    fn derive(&mut self, aead: &dyn AeadProvider, schedule: &KeySchedule) {
        let messages = self.messages.chunks(SIDE_BY_SIDE);
        for (messages, keys) in messages.zip(self.keys.chunks_mut(SIDE_BY_SIDE)) {
            let job = |message| DeriveJob { schedule, from: DeriveFrom::Cmac(message) };
            let jobs: ArrayVec<_, SIDE_BY_SIDE> =
                messages.iter().map(|message| job(message)).collect();
            aead.derive(&jobs, keys);
        }
    }

    fn seal(&mut self, aead: &dyn AeadProvider) {
        let Self { keys, frames, .. } = self;
        let jobs = frames.iter_mut().map(|frame| SealJob {
            key: JobKey::Fresh(frame.key.map_or(&KNOWN, |at| &keys[at])),
            iv: [1; IV_LEN],
            aad: &frame.aad,
            text: Text::in_place(&mut frame.text),
            tag: &mut frame.tag,
        });
        aead.seal(&mut jobs.collect::<ArrayVec<_, SIDE_BY_SIDE>>());
    }

    fn open(&mut self, aead: &dyn AeadProvider) {
        let Self { keys, frames, .. } = self;
        let jobs = frames.iter_mut().map(|frame| OpenJob {
            key: JobKey::Fresh(frame.key.map_or(&KNOWN, |at| &keys[at])),
            iv: [1; IV_LEN],
            aad: &frame.aad,
            text: Text::in_place(&mut frame.text),
            tag: &frame.tag,
            authentic: false,
        });
        let mut jobs: ArrayVec<_, SIDE_BY_SIDE> = jobs.collect();
        aead.open(&mut jobs);
        assert!(jobs.iter().all(|job| job.authentic), "they were sealed so");
    }
}

/// Whether a CQEP of the connection of a frame is among those.
fn has_cqep(received: &[Carried], of: &FrameView) -> bool {
    received.iter().any(|(_, octets)| {
        let view = FrameView::parse(octets).expect("a frame of an engine");
        matches!(view, FrameView::Cqep(_)) && view.header().connection == of.header().connection
    })
}

/// Returns the message that the key of a work request is derived from: all are of one length.
fn wqe_message(binding: &Binding) -> KeyMessage {
    let span = OpenSpan {
        op: WqeOp::Recv,
        slot: Slot(0),
        generation: Generation(1),
        mr: MrId(0),
        mr_offset: 0,
        len: MESSAGE,
    };
    KeyMessage::of_wqe(binding, &span)
}
