//! Ops of up to 4 KiB through a portal.
//!
//! The bytes that are written depend on their place alone, and atomics leave their word as it is:
//! so ops may be issued again, in any number at once, and the region holds what the client's model
//! says before and after.

use rma_xdp::{
    Grant, OpStatus,
    ops::{Change, ClassOfService, Placement, ReadOp, RecordedOp, Source, WriteOp},
};

use super::{
    mix::Mix,
    op::LoadOp,
    places::Places,
    work::{Due, Ended, Work},
};
use crate::{
    amount::WARM,
    client::{Client, word_at},
    error::PairError,
    failures::Failures,
};

/// Ops of up to 4 KiB through a client's portal.
#[derive(Debug)]
pub(crate) struct PortalWork<'a> {
    client: &'a mut Client,
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

impl<'a> PortalWork<'a> {
    /// Ops of `size` bytes at places of the first `span` bytes of the client's area.
    ///
    /// # Errors
    /// If one of the ops is not granted.
    pub(crate) fn new(
        client: &'a mut Client,
        mix: Mix,
        size: u32,
        span: u64,
        class: ClassOfService,
    ) -> Result<Self, PairError> {
        let granted = |op: LoadOp| client.grants.get(op.op_type());
        let grants = mix.ops().map(granted).collect::<Result<_, _>>()?;
        let seed = client.pattern.seed() ^ u64::from(size);
        let area = client.area().with_len_at_most(span);
        let slots = client.portal.slots().len();
        let words_stay = !mix.ops().any(LoadOp::writes);
        Ok(Self {
            mix,
            words_stay,
            grants,
            size,
            class,
            places: Places::new(area, size, seed),
            slots: vec![None; slots].into(),
            under_way: 0,
            next: Vec::with_capacity(slots + 1),
            client,
        })
    }

    /// Tells the client's model what was written, and its doubts of what failed and was not issued
    /// again.
    ///
    /// # Panics
    /// Never: the bounds are the regions' own.
    pub(crate) fn finish(self) {
        let Self { client, mix, next, places, size, .. } = self;
        for op in next.iter().filter(|it| mix.op(it.kind).writes()) {
            client.doubt((op.offset, size));
        }
        let Some(model) = &mut client.model else { return };
        let mut bytes = vec![0; size as usize];
        for offset in places.written() {
            client.source.read(offset % WARM, &mut bytes).expect("inside");
            model.apply(offset, &bytes);
        }
    }
}

impl Work for PortalWork<'_> {
    fn issue(&mut self, take: &mut impl FnMut() -> Option<Due>) -> Result<(), PairError> {
        let Self { client, mix, grants, places, slots, under_way, next, .. } = self;
        let Client { portal, source, local, model, pattern, .. } = &mut **client;
        let (op_size, class, first) = (self.size, self.class, portal.slots().start);
        let mut batch = portal.batch();
        while *under_way < slots.len() {
            let op = next.pop().unwrap_or_else(|| {
                let (kind, offset) = (mix.draw(places), places.draw());
                let is_atomic = mix.op(kind).is_atomic();
                let held = || word_at(model.as_ref(), *pattern, offset);
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
                    let (sink, sink_offset) = (&*local, 0);
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
        self.client.host.turn() > 0
    }

    #[inline]
    fn poll(&mut self) -> Option<Ended> {
        let completion = self.client.portal.poll()?;
        let slot = completion.slot.0 - self.client.portal.slots().start;
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
        &mut self.client.failures
    }
}
