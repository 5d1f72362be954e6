//! The loop of a load: begins gets when they come, looks at each value, and puts back what is
//! missing, on one thread.
//!
//! How long it runs is a question that it is given, asked after each turn: of time, or of what has
//! happened. Invariant: each get that was begun is counted once, and each value held against what
//! was put under its version.

use core::{pin::Pin, time::Duration};
use std::{io, path::Path};

use rma_keys::io::clock;
use rma_xdp::time::{Clock as _, Instant, TscClock};

use super::{
    seconds::{Counts, Second, Tally},
    tasks::Tasks,
    workload::{Mix, Op, Workload, key, value},
    writers::Writers,
};
use crate::client::{Cache, GetError, Got, ServerAt};

/// How many gets may be under way. Those that come beyond that are shed, and counted.
pub const UNDER_WAY_MAX: usize = 512;

/// How long the loop sleeps at most: whoever asks it to end is heard by then.
const SLEEP_MAX: Duration = Duration::from_millis(20);

const SECOND: Duration = Duration::from_secs(1);

/// A get that is over.
struct Ended {
    key: u64,
    latency: Duration,
    result: Result<Got, GetError>,
}

/// Gets and puts against a cache.
pub struct Load {
    cache: Cache,
    writers: Writers,
    workload: Workload,
    keys: u64,
    tasks: Tasks<Pin<Box<dyn Future<Output = Ended>>>>,
    clock: TscClock,
    began: Instant,
    /// When the next op comes, and which.
    next: (Instant, Op),
    version: u64,
    all: Tally,
    second: Tally,
    /// The counts at the beginning of this second, and its time.
    before: (Counts, Instant),
    served: Vec<u64>,
    events: Vec<String>,
    seconds: Vec<Second>,
    error: Option<GetError>,
}

impl core::fmt::Debug for Load {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Load").field("counts", &self.all.counts).finish_non_exhaustive()
    }
}

impl Load {
    /// A load of this mix on the servers of `cache`, put with the credentials in a directory.
    ///
    /// # Errors
    /// If there are no threads.
    pub fn new(
        cache: Cache,
        servers: &[ServerAt],
        credentials: &Path,
        (mix, seed): (Mix, u64),
    ) -> io::Result<Self> {
        let writers = Writers::start(servers, credentials)?;
        let mut workload = Workload::new(mix, seed);
        let (clock, (_, first)) = (TscClock::new(), workload.draw());
        let now = clock.now();
        Ok(Self {
            cache,
            writers,
            workload,
            keys: mix.keys,
            tasks: Tasks::new(),
            clock,
            began: now,
            next: (now, first),
            // A later load wins over those before it.
            version: clock::now().wall.unix_millis().unsigned_abs() << 20,
            all: Tally::default(),
            second: Tally::default(),
            before: (Counts::default(), now),
            served: vec![0; servers.len()],
            events: Vec::new(),
            seconds: Vec::new(),
            error: None,
        })
    }

    /// Puts every key once, at all servers that hold it, and waits until that is over. Returns how
    /// many copies are there.
    pub fn fill(&mut self) -> u64 {
        let before = self.writers.counts();
        let mut copies = 0;
        for number in 0..self.keys {
            let servers = self.cache.servers_of(&key(number));
            copies += servers.len() as u64;
            self.version += 1;
            self.writers.put_patiently(servers, number, self.version);
        }
        loop {
            let (stored, lost) = self.writers.counts();
            if stored + lost - before.0 - before.1 >= copies {
                return stored - before.0;
            }
            self.tasks.wait(SLEEP_MAX);
        }
    }

    /// Something has happened that people want to see in its second.
    pub fn note(&mut self, event: String) {
        self.events.push(event);
    }

    /// Runs until `over` says so, and has `tell` told of each second.
    pub fn run(&mut self, mut over: impl FnMut(&mut Self) -> bool, mut tell: impl FnMut(&Second)) {
        // It may have stood still since it ran last.
        let now = self.clock.now();
        self.next.0 = self.next.0.max(now);
        if self.seconds.is_empty() && self.all.counts.gets() == 0 {
            self.began = now;
            self.before = (self.counts(), now);
        }
        loop {
            let now = self.clock.now();
            while self.next.0 <= now {
                let (due, op) = self.next;
                self.begin(due, op);
                let (wait, op) = self.workload.draw();
                self.next = (due + wait, op);
            }
            for ended in self.tasks.turn() {
                self.take(ended);
            }
            let is_over = over(self);
            // The last one may be a little shorter.
            if now.since(self.before.1) >= if is_over { SECOND / 2 } else { SECOND } {
                self.end_second(now);
                tell(&self.seconds[self.seconds.len() - 1]);
            }
            if is_over {
                return;
            }
            let now = self.clock.now();
            if self.next.0 > now {
                self.tasks.wait(self.next.0.since(now).min(SLEEP_MAX));
            }
        }
    }

    fn begin(&mut self, due: Instant, op: Op) {
        match op {
            Op::Put(number) => {
                self.version += 1;
                self.writers.put(self.cache.servers_of(&key(number)), number, self.version);
            }
            Op::Get(_) if self.tasks.len() >= UNDER_WAY_MAX => self.all.counts.shed += 1,
            Op::Get(number) => {
                let (cache, clock) = (self.cache.clone(), self.clock.clone());
                self.tasks.push(Box::pin(async move {
                    let result = cache.get(&key(number)).await;
                    Ended { key: number, latency: clock.now().since(due), result }
                }));
            }
        }
    }

    fn take(&mut self, ended: Ended) {
        let Ended { key: number, latency, result } = ended;
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.all.latency.saturating_record(nanos);
        self.second.latency.saturating_record(nanos);
        let counts = &mut self.all.counts;
        match result {
            Ok(Got { found: Some(found), missed }) => {
                counts.hits += 1;
                counts.wrong += u64::from(found.value != value(number, found.version));
                self.served[found.server] += 1;
                self.writers.put(missed, number, found.version);
            }
            Ok(Got { found: None, .. }) => {
                counts.misses += 1;
                // The truth comes back with the next version.
                self.version += 1;
                self.writers.put(self.cache.servers_of(&key(number)), number, self.version);
            }
            Err(error) => {
                counts.failed += 1;
                self.error = Some(error);
            }
        }
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (torn, failovers, refetches) = self.cache.counts();
        let (puts, puts_lost) = self.writers.counts();
        Counts { torn, failovers, refetches, puts, puts_lost, ..self.all.counts }
    }

    /// How many values came from each server.
    #[must_use]
    pub fn served(&self) -> &[u64] {
        &self.served
    }

    /// For how long it has run.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.clock.now().since(self.began)
    }

    /// The last error of a get.
    #[must_use]
    pub const fn error(&self) -> Option<&GetError> {
        self.error.as_ref()
    }

    fn end_second(&mut self, now: Instant) {
        let counts = self.counts();
        self.second.counts = counts.since(&self.before.0);
        let (at, time) = (now.since(self.began), now.since(self.before.1));
        let events = core::mem::take(&mut self.events);
        self.seconds.push(Second::new(at, time, &self.second, events));
        self.second = Tally::default();
        self.before = (counts, now);
    }

    /// All seconds, and all of the run in one.
    #[must_use]
    pub fn end(mut self) -> (Vec<Second>, Second) {
        let time = self.time();
        self.all.counts = self.counts();
        let all = Second::new(time, time, &self.all, core::mem::take(&mut self.events));
        (self.seconds, all)
    }
}
