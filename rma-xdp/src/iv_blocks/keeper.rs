//! The thread that reserves the next block while an engine uses up the present one.
//!
//! The engine says that it wants a block, and later finds it in a queue; it neither waits nor
//! touches the disk. Both kinds of host have this thread: an application that drives its engine
//! itself does not wait for a disk either. It sleeps until it is wanted.

use core::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::{self, Thread},
};

use crossbeam_queue::ArrayQueue;
use rma_core::{
    crypto::{CounterBlock, IvCounter},
    nic::Nic,
};
use rma_shm::Worker;

use super::{error::CounterError, store::Store};

/// How long after a failure the thread tries again. Half of a first block lasts for longer.
const RETRY: Duration = Duration::from_secs(1);

/// The state that the engine and the thread share.
#[derive(Debug)]
struct Shared {
    wanted: AtomicBool,
    stop: AtomicBool,
    reserved: ArrayQueue<CounterBlock>,
    /// The error of the last attempt; `None` if it did not.
    trouble: Mutex<Option<CounterError>>,
}

/// The thread. Dropped, it ends at once, or when a write of a few octets that is under way is over:
/// it waits for nobody else then.
#[derive(Debug)]
pub(super) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<Worker>,
}

impl Keeper {
    /// `after` is where the first block ended.
    pub(super) fn start(store: Store, after: u64) -> Result<Self, CounterError> {
        let shared = Arc::new(Shared {
            wanted: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            reserved: ArrayQueue::new(1),
            trouble: Mutex::new(None),
        });
        let seen = shared.clone();
        let thread = Worker::start("rma-counter", move || keep(&store, after, &seen))
            .map_err(|source| CounterError::Thread { source })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The engine's end.
    pub(super) fn supply(&self) -> BlockSupply {
        let thread = self.thread.as_ref().map(|thread| thread.thread().clone());
        BlockSupply(thread.map(|keeper| (self.shared.clone(), keeper)))
    }

    /// Returns the reason why there is no further block, if one could not be reserved.
    pub(super) fn trouble(&self) -> Option<String> {
        let trouble = self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().map(|error| {
            format!("no frames once the present counter block is used up, instead of the next block: {error}")
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join();
        }
    }
}

/// The body of the thread.
///
/// `wanted` stays true until the block is in the queue, so an engine that asks meanwhile does not
/// ask twice. A wish that crosses with that is forgotten; the engine has it again the next time.
fn keep(store: &Store, mut after: u64, shared: &Shared) {
    let stopped = || shared.stop.load(SeqCst);
    while !stopped() {
        if !shared.wanted.load(SeqCst) {
            thread::park();
            continue;
        }
        if !shared.reserved.is_empty() {
            // The engine has not taken the last one yet.
            shared.wanted.store(false, SeqCst);
            continue;
        }
        let reserved = store.reserve_next(after, stopped);
        let mut trouble = shared.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match reserved {
            Ok(block) => {
                *trouble = None;
                after = block.end();
                tracing::debug!(first = block.first(), end = after, "counter block reserved");
                shared.reserved.push(block).expect("this thread alone fills the queue");
                shared.wanted.store(false, SeqCst);
            }
            Err(error) => {
                // Once: it is tried again every second.
                if trouble.is_none() {
                    tracing::warn!(%error, "the next counter block cannot be reserved");
                }
                *trouble = Some(error);
                drop(trouble);
                // Waiting for the lock may have taken the wake-up call that came with `stop`.
                if !stopped() {
                    thread::park_timeout(RETRY);
                }
            }
        }
    }
}

/// A service of an engine that counts in blocks. What several have of one supply is never the same
/// block, so no value is used twice.
pub(crate) trait Counting {
    /// Whether it is time for a further block.
    fn wants_block(&self) -> bool;

    /// Takes the block to go on with.
    fn add_block(&mut self, block: CounterBlock) -> Result<(), CounterBlock>;
}

impl Counting for Nic {
    fn wants_block(&self) -> bool {
        self.wants_counter_block()
    }

    fn add_block(&mut self, block: CounterBlock) -> Result<(), CounterBlock> {
        self.add_counter_block(block)
    }
}

impl Counting for IvCounter {
    fn wants_block(&self) -> bool {
        self.wants_block()
    }

    fn add_block(&mut self, block: CounterBlock) -> Result<(), CounterBlock> {
        self.add(block)
    }
}

/// The engine's end: neither waits, nor allocates, nor touches the disk.
#[derive(Debug, Default)]
pub(crate) struct BlockSupply(Option<(Arc<Shared>, Thread)>);

impl BlockSupply {
    /// For an engine whose first block is all there is.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Gives a service a block that has been reserved, or says that one is wanted, when it is time.
    /// To be called now and then.
    pub(crate) fn turn(&self, counting: &mut impl Counting) {
        let Some((shared, keeper)) = &self.0 else { return };
        if !counting.wants_block() {
            return;
        }
        if let Some(block) = shared.reserved.pop() {
            // Were it refused, it would be lost, and the next one is above it.
            let _ = counting.add_block(block);
        } else if !shared.wanted.swap(true, SeqCst) {
            keeper.unpark();
        }
    }
}
