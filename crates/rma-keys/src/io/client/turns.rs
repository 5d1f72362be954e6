//! The loop of a client: which services can go on, and what is asked of them from other threads.
//!
//! [`ClientLoop::wait`] waits, [`ClientLoop::turn`] does what can be done and never waits.

use core::time::Duration;
use std::{io, path::Path, sync::Arc};

use rma_core::time::Instant;
use rustls::crypto::SecureRandom;

use crate::{
    io::{
        client::{
            fetcher::{Ask, Fetcher, Shared},
            source::{Job, Means, Source},
        },
        poller::Poller,
        server::StartError,
    },
    time::Now,
    tls::{credentials::Credentials, directory::Directory, trust::Side, wall::Wall},
};

/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A client's loop.
pub struct ClientLoop {
    poller: Poller,
    wall: Arc<Wall>,
    credentials: Credentials,
    directory: Option<Directory>,
    random: &'static dyn SecureRandom,
    sources: Vec<Source>,
    shared: Arc<Shared>,
}

impl core::fmt::Debug for ClientLoop {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let identity = self.credentials.identity();
        f.debug_struct("ClientLoop").field("identity", identity).finish_non_exhaustive()
    }
}

/// Tells the waiters of all requests not taken yet that nobody will answer.
impl Drop for ClientLoop {
    fn drop(&mut self) {
        let mut inbox = self.shared.lock();
        inbox.is_closed = true;
        let asks = core::mem::take(&mut inbox.asks);
        drop(inbox);
        drop(asks);
    }
}

impl ClientLoop {
    /// A loop that connects as whoever `credentials` are of.
    ///
    /// # Errors
    /// If the system has no more files.
    pub fn new(credentials: Credentials) -> io::Result<Self> {
        let poller = Poller::new()?;
        let shared = Shared::new(poller.waker());
        Ok(Self {
            poller,
            wall: Arc::new(Wall::new()),
            credentials,
            directory: None,
            random: rustls::crypto::ring::default_provider().secure_random,
            sources: Vec::new(),
            shared: Arc::new(shared),
        })
    }

    /// The same, with credentials in the directory `path`, which are read anew when they change.
    ///
    /// # Errors
    /// As [`Directory::open`] and [`Self::new`]; and if services would not take the certificate
    /// now.
    pub fn from_directory(path: &Path) -> Result<Self, StartError> {
        let (directory, credentials) = Directory::open(path)?;
        StartError::judge(path, &credentials, Side::Client)?;
        let mut turns = Self::new(credentials)?;
        turns.directory = Some(directory);
        Ok(turns)
    }

    /// Returns the fetcher.
    #[must_use]
    pub fn fetcher(&self) -> Fetcher {
        Fetcher { shared: Arc::clone(&self.shared) }
    }

    /// When it wants a turn even if nothing happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let sources = self.sources.iter().filter_map(Source::poll_timeout);
        let directory = self.directory.as_ref().and_then(Directory::poll_timeout);
        sources.chain(directory).min()
    }

    /// Waits until there is something to do, or it is time to.
    pub fn wait(&mut self, now: Instant) {
        self.wait_until(now, None);
    }

    /// The same, and no longer than until `until`.
    pub fn wait_until(&mut self, now: Instant, until: Option<Instant>) {
        let at = self.poll_timeout().into_iter().chain(until).min();
        let most = at.map_or(WAIT_MAX, |at| at.since(now).min(WAIT_MAX));
        // All sources have their turn anyway: they are few.
        if let Err(error) = self.poller.wait(most) {
            tracing::error!(%error, "the client of key services cannot wait for its sockets");
        }
    }

    /// Does what can be done now.
    pub fn turn(&mut self, now: Now) {
        self.wall.set(now.wall);
        match self.directory.as_mut().and_then(|it| it.poll(now.boot)) {
            None => {}
            Some(Ok(credentials)) => {
                if let Err(why) = credentials.verify(Side::Client, now.wall) {
                    tracing::warn!(%why, "key services will not take this client's new certificate");
                }
                self.credentials = credentials;
                for source in &mut self.sources {
                    source.config = self.credentials.client(&self.wall, source.expected.clone());
                }
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "the client of key services goes on with old credentials");
            }
        }
        let (asks, hurries) = {
            let mut inbox = self.shared.lock();
            for at in inbox.taken..inbox.sources.len() {
                let (addresses, expected) = inbox.sources[at].clone();
                let config = self.credentials.client(&self.wall, expected.clone());
                self.sources.push(Source::new(at as u64, config, addresses, expected));
            }
            inbox.taken = inbox.sources.len();
            (core::mem::take(&mut inbox.asks), core::mem::take(&mut inbox.hurries))
        };
        for source in hurries {
            if let Some(source) = self.sources.get_mut(source.number()) {
                source.hurry(now.boot);
            }
        }
        for Ask { source, number, message, from, patience, slot } in asks {
            let job = Job { number, message, from, deadline: now.boot + patience, slot };
            // A number of another client's goes unanswered: its slot says that it has ended.
            if let Some(source) = self.sources.get_mut(source.number()) {
                source.ask(job);
            }
        }
        for source in &mut self.sources {
            let mut random = [0; 8];
            // Without randomness all is well but for who comes when.
            _ = self.random.fill(&mut random);
            let random = u64::from_ne_bytes(random);
            source.turn(now.boot, &Means { poller: &self.poller, random });
        }
        let mut inbox = self.shared.lock();
        for (seen, source) in inbox.seen.iter_mut().zip(&self.sources) {
            *seen = source.seen();
        }
    }
}
