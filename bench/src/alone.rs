//! Ops one at a time, and how long each takes.
//!
//! Not here: what a receiver sees of them ([`one_way`](crate::one_way)), and many at once
//! ([`pipelined`](crate::pipelined)). What is written depends on its place alone, atomics leave the
//! word as it is, and what an atomic tells of it is looked at each time: so the region holds what
//! the client's model says, before and after.

use core::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};
use rma_xdp::{
    Completion, Grant, OpStatus, OpType, SubmitError,
    ops::{CommandSlotId, Moves, Source},
    time::Clock,
};

use crate::{
    amount::WARM, client::Client, error::PairError, interrupt::Interrupt, latency::Latencies,
};

/// Bytes of a cache line, which measured ops begin at.
const LINE: u64 = 64;

/// Bytes of the word that an atomic is about.
const WORD: u32 = 8;

/// An op that is measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoneOp {
    /// READ of bytes that nobody changes meanwhile.
    Read,
    /// WRITE, whose bytes land in any order.
    Write,
    /// WRITE whose last word lands last.
    OrderedWrite,
    /// WRITE_WITH_IMM, whose bytes land in any order before its event.
    WriteWithImm,
    /// COMPARE_SWAP of a word for itself.
    CompareSwap,
    /// FETCH_ADD of nothing.
    FetchAdd,
}

impl LoneOp {
    /// The type of op that the grant has to permit.
    #[must_use]
    pub const fn op_type(self) -> OpType {
        match self {
            Self::Read => OpType::Read,
            Self::Write | Self::OrderedWrite => OpType::Write,
            Self::WriteWithImm => OpType::WriteWithImm,
            Self::CompareSwap => OpType::CompareSwap,
            Self::FetchAdd => OpType::FetchAdd,
        }
    }

    /// The op in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OrderedWrite => "ordered WRITE",
            _ => self.op_type().shape().name,
        }
    }

    /// The direction in which data moves.
    #[must_use]
    pub const fn moves(self) -> Moves {
        self.op_type().shape().moves
    }

    /// Whether the region holds other bytes afterwards.
    const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::OrderedWrite | Self::WriteWithImm)
    }
}

impl Client {
    /// Runs ops of `size` bytes at random lines of the region's first `span` bytes, one after the
    /// other: `warm_up` times, then `count` times with the clock running. From before the command
    /// is issued until its completion has been polled. Of an atomic `size` is 8, whatever it is.
    ///
    /// What is written depends on its place alone, and the model is told of it afterwards.
    ///
    /// # Errors
    /// If op after op fails, or such ops are not granted; if an atomic finds another word than
    /// should be there.
    pub fn measure(
        &mut self,
        op: LoneOp,
        of: (u32, u64),
        counts: (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<Latencies, PairError> {
        let mut latencies = Latencies::new();
        self.measure_into(op, of, counts, (&mut latencies, interrupt))?;
        Ok(latencies)
    }

    /// [`Client::measure`], of which `latencies` has what there is, also if it ends early.
    ///
    /// # Errors
    /// As [`Client::measure`].
    ///
    /// # Panics
    /// Never: the bounds are the regions' own.
    pub(crate) fn measure_into(
        &mut self,
        op: LoneOp,
        (size, span): (u32, u64),
        (warm_up, count): (u64, u64),
        (latencies, interrupt): (&mut Latencies, &Interrupt),
    ) -> Result<(), PairError> {
        let grant = self.grants.get(op.op_type())?;
        let mut random = StdRng::seed_from_u64(self.pattern.seed() ^ u64::from(size));
        let (mut done, mut again) = (0, None);
        // Whole cache lines, as one would lay out what must be read fast.
        let span = span.min(self.span());
        let places = span.saturating_sub(size.max(WORD).into()) / LINE;
        let mut written = vec![false; places as usize + 1];
        let mut ended = Ok(());
        while ended.is_ok() && done < warm_up + count {
            let place = again.take().unwrap_or_else(|| random.random_range(0..=places));
            let offset = place * LINE;
            let word = self.word(offset);
            let start = self.clock.now();
            self.issue_alone(op, &grant, (offset, size), word)?;
            let completion = self.host.wait(&mut self.portal)?;
            let now = self.clock.now();
            let took: Duration = now.since(start);
            let Completion { status, .. } = completion;
            if status == OpStatus::Ok {
                self.failures.ok(now);
                done += 1;
                if done > warm_up {
                    latencies.record(took);
                }
                if completion.result().is_some_and(|found| found != word) {
                    return Err(PairError::WrongByte { at: offset });
                }
                written[place as usize] = true;
            } else {
                // The same place: some of a write that failed may have landed.
                again = Some(place);
                ended = self.failures.count(status, now);
            }
            if interrupt.is_set() {
                ended = Err(PairError::Interrupted);
            }
        }
        if op.writes()
            && let Some(place) = again
        {
            self.doubt((place * LINE, size));
        }
        if op.writes()
            && let Some(model) = &mut self.model
        {
            let mut bytes = vec![0; size as usize];
            for (place, _) in written.iter().enumerate().filter(|(_, written)| **written) {
                let offset = place as u64 * LINE;
                self.source.read(offset % WARM, &mut bytes).expect("inside");
                model.apply(offset, &bytes);
            }
        }
        ended
    }

    fn issue_alone(
        &mut self,
        op: LoneOp,
        grant: &Grant,
        (offset, len): (u64, u32),
        word: u64,
    ) -> Result<CommandSlotId, SubmitError> {
        let Self { portal, source, local, .. } = self;
        let from = offset % WARM;
        let source = Source { region: source, offset: from, len };
        match op {
            LoneOp::Read => portal.read(grant, offset, local, 0, len),
            LoneOp::Write => portal.write(grant, offset, source.region, from, len),
            LoneOp::OrderedWrite => portal.write_ordered(grant, offset, source),
            LoneOp::WriteWithImm => portal.write_with_imm(grant, offset, source, offset),
            LoneOp::CompareSwap => portal.compare_swap(grant, offset, word, word),
            LoneOp::FetchAdd => portal.fetch_add(grant, offset, 0),
        }
    }

    /// The word that the region should hold at `offset`.
    pub fn word(&self, offset: u64) -> u64 {
        let mut bytes = [0; WORD as usize];
        match &self.model {
            Some(model) => model.read(offset, &mut bytes),
            None => self.pattern.fill(offset, &mut bytes),
        }
        u64::from_le_bytes(bytes)
    }
}
