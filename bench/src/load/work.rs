//! Work that a load's loop gives ops to: a portal's ops of up to 4 KiB, an executor's calls of any
//! size.

use rma_core::time::Instant;
use rma_xdp::{InlineHost, OpStatus};

use super::places::Places;
use crate::{
    amount::WARM,
    client::{Area, Client},
    error::PairError,
    failures::Failures,
    model::Model,
};

/// Issues ops, and tells how they end.
pub(crate) trait Work {
    /// Issues an op for each that `take` gives, as long as there is room. `take` is asked at the
    /// time at which the op is issued, and answers when it was due.
    ///
    /// # Errors
    /// If an op is refused.
    fn issue(&mut self, take: &mut impl FnMut() -> Option<Due>) -> Result<(), PairError>;

    /// Lets the engine do what there is to do. Returns whether there was anything.
    fn turn(&mut self) -> bool;

    /// The next op that has ended.
    fn poll(&mut self) -> Option<Ended>;

    /// The failures in a row, which end a run at some point.
    fn failures(&mut self) -> &mut Failures;
}

/// Work that changes a region.
pub(crate) trait Leaves: Work {
    /// The end of it: what it leaves.
    fn finish(self) -> Left;
}

/// Whoever turns the engine that a work's ops go through.
#[derive(Debug)]
pub(crate) enum Engine<'a> {
    /// The thread that issues them.
    Here(&'a mut InlineHost),
    /// Another thread.
    Elsewhere,
}

/// The bytes that a work leaves in the region: whole ops, and those of which nobody knows what has
/// landed.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) places: Places,
    /// Bytes of each op.
    pub(crate) size: u64,
    pub(crate) doubtful: Vec<u64>,
}

impl Left {
    /// Tells the client's model of it.
    pub(crate) fn tell(self, client: &mut Client) {
        let Self { places, size, doubtful } = self;
        for offset in doubtful {
            client.doubt_area(Area { offset, len: size });
        }
        // What was written depends on its place alone, again and again.
        let mut one = vec![0; WARM as usize];
        Client::source_pattern(client.pattern).fill(0, &mut one);
        let all = Model::new(one.repeat(size.div_ceil(WARM) as usize + 1));
        let Some(model) = &mut client.model else { return };
        let mut bytes = vec![0; size as usize];
        for offset in places.written() {
            all.read(offset % WARM, &mut bytes);
            model.apply(offset, &bytes);
        }
    }
}

/// The time at which an op was due, and that at which it is issued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) due: Instant,
    pub(crate) issued: Instant,
}

/// An op that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Its index in the mix of ops.
    pub(crate) kind: usize,
    pub(crate) at: Due,
    pub(crate) status: OpStatus,
    /// Bytes of payload that it moved, if it is OK.
    pub(crate) bytes: u64,
    /// Ops that were issued again for it.
    pub(crate) retries: u32,
    /// The place where a byte is not what it should be.
    pub(crate) wrong: Option<u64>,
}
