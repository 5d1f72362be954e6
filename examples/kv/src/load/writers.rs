//! Puts that wait for nobody: each server has a thread, a connection, and a line of puts.
//!
//! A server that is away loses its puts, and clients that find something missing there put it
//! again. Invariant: a line that is full takes nothing, and nobody waits for it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use super::workload;
use crate::{client::ServerAt, puts::PutClient};

/// How many puts wait for a server at most.
const LINE: usize = 1024;

/// How long a server that cannot be reached is left alone.
const REST: Duration = Duration::from_millis(200);

/// The threads, and what they have done.
#[derive(Debug)]
pub struct Writers {
    lines: Vec<SyncSender<(u64, u64)>>,
    done: Arc<Done>,
}

/// The results of puts.
#[derive(Debug, Default)]
struct Done {
    stored: AtomicU64,
    lost: AtomicU64,
}

impl Writers {
    /// Starts a thread for each server.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(servers: &[ServerAt], credentials: &Path) -> std::io::Result<Self> {
        let done = Arc::new(Done::default());
        let start = |server: &ServerAt| {
            let (line, puts) = sync_channel(LINE);
            let client = PutClient::new(server.puts, server.identity.clone(), credentials);
            let done = Arc::clone(&done);
            thread::Builder::new()
                .name("kv-puts".into())
                .spawn(move || write(client, &puts, &done))?;
            Ok(line)
        };
        let lines = servers.iter().map(start).collect::<std::io::Result<_>>()?;
        Ok(Self { lines, done })
    }

    /// Puts a version of a key at these servers, some time.
    pub fn put(&self, servers: impl IntoIterator<Item = usize>, key: u64, version: u64) {
        for server in servers {
            if self.lines[server].try_send((key, version)).is_err() {
                self.done.lost.fetch_add(1, Relaxed);
            }
        }
    }

    /// [`Writers::put`], but waits for room in the lines.
    pub fn put_patiently(&self, servers: impl IntoIterator<Item = usize>, key: u64, version: u64) {
        for server in servers {
            // A line goes when its thread has panicked, which has been shown.
            if self.lines[server].send((key, version)).is_err() {
                self.done.lost.fetch_add(1, Relaxed);
            }
        }
    }

    /// Puts that servers have told to be there, each copy for itself, and those that were lost.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.done.stored.load(Relaxed), self.done.lost.load(Relaxed))
    }
}

/// Until the line is gone.
fn write(mut client: PutClient, puts: &Receiver<(u64, u64)>, done: &Done) {
    let mut is_told = false;
    while let Ok((key, version)) = puts.recv() {
        match client.put(&workload::key(key), &workload::value(key, version), version) {
            Ok(_) => {
                is_told = false;
                done.stored.fetch_add(1, Relaxed);
            }
            Err(error) => {
                if !core::mem::replace(&mut is_told, true) {
                    eprintln!("kv: {error}");
                }
                done.lost.fetch_add(1, Relaxed);
                // Waiting puts are lost as well, as the server is not there.
                done.lost.fetch_add(puts.try_iter().count() as u64, Relaxed);
                thread::park_timeout(REST);
            }
        }
    }
}
