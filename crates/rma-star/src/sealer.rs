//! The sealer of this host's frames, whichever side it is: one counter for all of them, so that no
//! IV comes twice under any key (P4, section 3.3 of `docs/STAR-WIRE.md`).

use core::fmt;

use rma_core::{
    backend::TxFrame,
    crypto::{EngineId, Iv, IvCounter},
    seal::{Opening, Sealing},
};
use rma_crypto::AeadProvider;

use crate::{
    aad::{self, AAD_LEN_MAX},
    clock::ZTime,
    keys::FrameKey,
    names::ConnectionName,
    wire::{Header, KeyPhase},
};

/// Frames that are written and to be sealed, and the counter that makes their IVs fresh.
pub(crate) struct Sealer {
    pub(crate) aead: &'static dyn AeadProvider,
    engine: EngineId,
    counter: IvCounter,
    sealing: Sealing<(), AAD_LEN_MAX>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer({:?}, {:?})", self.engine, self.counter)
    }
}

impl Sealer {
    pub(crate) fn new(
        aead: &'static dyn AeadProvider,
        engine: EngineId,
        counter: IvCounter,
    ) -> Self {
        Self { aead, engine, counter, sealing: Sealing::new() }
    }

    /// Whether there is a counter value for a frame. To be asked before each.
    pub(crate) const fn can_seal(&self) -> bool {
        self.counter.left() > 0
    }

    pub(crate) const fn counter(&self) -> &IvCounter {
        &self.counter
    }

    pub(crate) const fn counter_mut(&mut self) -> &mut IvCounter {
        &mut self.counter
    }

    /// The header of a frame of this engine's, with a counter never used before.
    pub(crate) fn header(
        &mut self,
        connection: ConnectionName,
        phase: KeyPhase,
        time: ZTime,
    ) -> Header {
        let counter = self.counter.next().expect("`can_seal` was asked first");
        Header { connection, phase, engine: self.engine, counter, time: time.low() }
    }

    /// Notes what the next frame is sealed with: one with this header, that answers none.
    pub(crate) fn push<const HEADER: usize>(
        &mut self,
        key: &FrameKey,
        iv: Iv,
        header: &[u8; HEADER],
        time: ZTime,
    ) {
        self.sealing.push_joined((), key.as_key(), iv, HEADER, header, &aad::tail(time));
    }

    /// As [`Sealer::push`], of one that answers the frame of IV `answers`.
    pub(crate) fn push_answer<const HEADER: usize>(
        &mut self,
        key: &FrameKey,
        iv: Iv,
        header: &[u8; HEADER],
        time: ZTime,
        answers: &Iv,
    ) {
        let tail = aad::answer_tail(time, answers);
        self.sealing.push_joined((), key.as_key(), iv, HEADER, header, &tail);
    }

    /// Seals the frames that were noted, in their order: at most a batch.
    pub(crate) fn seal(&mut self, frames: &mut [TxFrame<'_>]) {
        self.sealing.seal(self.aead, frames, |(), _| ());
    }
}

/// The AEAD state that frames of a batch are opened with.
pub(crate) type Batch = Opening<AAD_LEN_MAX>;

/// Notes what frame `index` of a batch is opened with, but for its key: one that answers none.
pub(crate) fn expect<const HEADER: usize>(
    batch: &mut Batch,
    index: usize,
    iv: Iv,
    frame: &[u8],
    time: ZTime,
) {
    let header = frame.first_chunk::<HEADER>().expect("a frame that was parsed");
    batch.expect_joined(index, iv, HEADER, header, &aad::tail(time));
}

/// As [`expect`], of one that answers the frame of IV `answers`.
pub(crate) fn expect_answer<const HEADER: usize>(
    batch: &mut Batch,
    index: usize,
    iv: Iv,
    frame: &[u8],
    time: ZTime,
    answers: &Iv,
) {
    let header = frame.first_chunk::<HEADER>().expect("a frame that was parsed");
    batch.expect_joined(index, iv, HEADER, header, &aad::answer_tail(time, answers));
}
