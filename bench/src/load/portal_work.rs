//! Ops of up to 4 KiB through a portal.
//!
//! The bytes that are written depend on their place alone, and atomics leave their word as it is:
//! so ops may be issued again, in any number at once, and the region holds what the client's model
//! says before and after.

use rma_lab::Pattern;
use rma_xdp::{
    Grant, OpStatus, Portal, RegisteredRegion,
    ops::{Change, ClassOfService, Placement, ReadOp, RecordedOp, Source, WriteOp},
};

use super::{
    crew::{Crew, seed_of},
    mix::Mix,
    op::LoadOp,
    places::Places,
    work::{Due, Ended, Engine, Leaves, Left, Work},
};
use crate::{
    amount::WARM,
    client::{Area, Client, word_at},
    error::PairError,
    failures::Failures,
    model::Model,
};

/// Ops of up to 4 KiB through a portal.
#[derive(Debug)]
pub(crate) struct PortalWork<'a> {
    engine: Engine<'a>,
    portal: &'a mut Portal,
    /// The memory that is sent from.
    source: &'a RegisteredRegion,
    /// The memory that READs land in.
    sink: &'a RegisteredRegion,
    model: Option<&'a Model>,
    pattern: Pattern,
    failures: Failures,
    mix: Mix,
    grants: Vec<Grant>,
    size: u32,
    class: ClassOfService,
    /// Whether nothing of the mix changes words.
    words_stay: bool,
    places: Places,
    /// The ops under way, by slot.
    slots: Box<[Option<Issued>]>,
    under_way: usize,
    /// To be issued before anything else is drawn: what was drawn and not taken, and what failed,
    /// as some bytes of a WRITE that failed may have landed.
    next: Vec<Drawn>,
}

/// An op that was drawn.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    kind: usize,
    offset: u64,
    /// The word there, if it is an atomic.
    word: u64,
}

/// An op that was issued.
#[derive(Clone, Copy, Debug)]
struct Issued {
    op: Drawn,
    at: Due,
}

/// The ops to issue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Small {
    /// Bytes of each.
    pub(crate) size: u32,
    pub(crate) class: ClassOfService,
}

impl<'a> PortalWork<'a> {
    /// Such ops of a client, one work for each of `areas`: of one alone the thread that issues them
    /// turns the engine, of several another one does, which has the host that is returned.
    ///
    /// # Errors
    /// If one of the ops is not granted.
    ///
    /// # Panics
    /// If the client has fewer portals than there are areas.
    pub(crate) fn all(
        client: &'a mut Client,
        mix: &Mix,
        Small { size, class }: Small,
        areas: &[Area],
    ) -> Result<Crew<'a, Self>, PairError> {
        let granted = |op: LoadOp| client.grants.get(op.op_type());
        let grants = mix.ops().map(granted).collect::<Result<Vec<_>, _>>()?;
        let (pattern, words_stay) = (client.pattern, !mix.ops().any(LoadOp::writes));
        let Client { host, portal, others, source, local, model, failures, .. } = client;
        let portals = core::iter::once(portal).chain(others.iter_mut());
        let (mut host, model) = (Some(host), model.as_ref());
        let works = areas.iter().zip(portals).zip(0..).map(|((&area, portal), thread)| {
            let slots = portal.slots().len();
            let engine = host.take_if(|_| areas.len() == 1);
            Self {
                engine: engine.map_or(Engine::Elsewhere, Engine::Here),
                portal,
                source,
                sink: local,
                model,
                pattern,
                failures: failures.of_thread(),
                mix: mix.clone(),
                words_stay,
                grants: grants.clone(),
                size,
                class,
                places: Places::new(area, size, seed_of(pattern, size.into(), thread)),
                slots: vec![None; slots].into(),
                under_way: 0,
                next: Vec::with_capacity(slots + 1),
            }
        });
        let works: Vec<Self> = works.collect();
        assert_eq!(works.len(), areas.len(), "a portal for each thread");
        Ok(Crew { host, works })
    }
}

impl Work for PortalWork<'_> {
    fn issue(&mut self, take: &mut impl FnMut() -> Option<Due>) -> Result<(), PairError> {
        let Self { portal, mix, grants, places, slots, under_way, next, .. } = self;
        let (source, sink, model, pattern) = (self.source, self.sink, self.model, self.pattern);
        let (op_size, class, first) = (self.size, self.class, portal.slots().start);
        let mut batch = portal.batch();
        while *under_way < slots.len() {
            let op = next.pop().unwrap_or_else(|| {
                let (kind, offset) = (mix.draw(places), places.draw());
                let is_atomic = mix.op(kind).is_atomic();
                let held = || word_at(model, pattern, offset);
                Drawn { kind, offset, word: if is_atomic { held() } else { 0 } }
            });
            let Some(at) = take() else {
                next.push(op);
                break;
            };
            let Drawn { kind, offset: remote_offset, word } = op;
            let (grant, source_offset) = (&grants[kind], remote_offset % WARM);
            let from = Source { region: source, offset: source_offset, len: op_size };
            let mut change = |change| batch.recorded(&RecordedOp { grant, change, class });
            let slot = match mix.op(kind) {
                LoadOp::Read => {
                    // All to one place: nobody looks at these bytes.
                    let sink_offset = 0;
                    batch.read(&ReadOp { grant, remote_offset, sink, sink_offset, op_size, class })
                }
                LoadOp::Write => batch.write(&WriteOp {
                    grant,
                    remote_offset,
                    source,
                    source_offset,
                    op_size,
                    class,
                }),
                LoadOp::OrderedWrite => {
                    change(Change::OrderedWrite { remote_offset, source: from })
                }
                LoadOp::WriteWithImm => {
                    let (immediate, placement) = (remote_offset, Placement::Any);
                    let source = from;
                    change(Change::WriteWithImm { remote_offset, source, immediate, placement })
                }
                LoadOp::Send => change(Change::Send { message: from, immediate: source_offset }),
                LoadOp::CompareSwap => {
                    change(Change::CompareSwap { remote_offset, expected: word, new: word })
                }
                LoadOp::FetchAdd => change(Change::FetchAdd { remote_offset, addend: 0 }),
            }?;
            slots[usize::from(slot.0 - first)] = Some(Issued { op, at });
            *under_way += 1;
        }
        Ok(())
    }

    #[inline]
    fn turn(&mut self) -> bool {
        match &mut self.engine {
            Engine::Here(host) => host.turn() > 0,
            Engine::Elsewhere => false,
        }
    }

    #[inline]
    fn poll(&mut self) -> Option<Ended> {
        let completion = self.portal.poll()?;
        let slot = completion.slot.0 - self.portal.slots().start;
        let issued = self.slots[usize::from(slot)].take();
        let Issued { op, at } = issued.expect("completions name slots that were issued");
        self.under_way -= 1;
        let (kind, status) = (op.kind, completion.status);
        let load_op = self.mix.op(kind);
        if status != OpStatus::Ok {
            self.next.push(op);
        } else if load_op.writes() {
            self.places.wrote(op.offset);
        }
        let is_wrong = |found| found != op.word && self.words_stay;
        let wrong = completion.result().is_some_and(is_wrong).then_some(op.offset);
        let bytes = if load_op.is_atomic() { 8 } else { self.size.into() };
        Some(Ended { kind, at, status, bytes, retries: 0, wrong })
    }

    fn failures(&mut self) -> &mut Failures {
        &mut self.failures
    }
}

impl Leaves for PortalWork<'_> {
    fn finish(self) -> Left {
        let Self { mix, next, places, size, .. } = self;
        let doubtful = next.iter().filter(|it| mix.op(it.kind).writes()).map(|it| it.offset);
        Left { doubtful: doubtful.collect(), places, size: size.into() }
    }
}
