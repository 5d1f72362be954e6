//! Messages there and back as a service has them that was not tuned: TCP under tokio, each side a
//! runtime of one thread, which sleeps while it waits.

use std::{net::TcpStream as Blocking, thread};

use rma_bench::{compare::Sockets, error::PairError, floor::clock, latency::Latencies};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::{Builder, Runtime},
};

/// A client, and the thread that answers it, until this is dropped.
#[derive(Debug)]
pub struct Service {
    runtime: Runtime,
    stream: TcpStream,
}

fn runtime() -> Result<Runtime, PairError> {
    Builder::new_current_thread().enable_io().build().map_err(PairError::Sockets)
}

/// Within a runtime.
fn stream(runtime: &Runtime, blocking: Blocking) -> Result<TcpStream, PairError> {
    let _inside = runtime.enter();
    TcpStream::from_std(blocking).map_err(PairError::Sockets)
}

impl Service {
    /// Answers messages of `LEN` bytes.
    ///
    /// # Errors
    /// If the sockets cannot be had.
    pub fn open<const LEN: usize>(sockets: &Sockets) -> Result<Self, PairError> {
        let [client, server] = sockets.tcp()?;
        let answers = runtime()?;
        let mut answered = stream(&answers, server)?;
        // Ends with the client's end of the connection.
        thread::spawn(move || {
            answers.block_on(async {
                let mut message = [0; LEN];
                while answered.read_exact(&mut message).await.is_ok() {
                    if answered.write_all(&message).await.is_err() {
                        break;
                    }
                }
            });
        });
        let runtime = runtime()?;
        let stream = stream(&runtime, client)?;
        Ok(Self { runtime, stream })
    }

    /// So many messages there and back, one at a time.
    ///
    /// # Errors
    /// If the connection has failed.
    pub fn ping_pong<const LEN: usize>(&mut self, count: u64) -> Result<Latencies, PairError> {
        let Self { runtime, stream } = self;
        let mut latencies = Latencies::new();
        let mut answer = [0; LEN];
        for _ in 0..count {
            let began = clock();
            let both = async {
                stream.write_all(&[0x5a; LEN]).await?;
                stream.read_exact(&mut answer).await
            };
            runtime.block_on(both).map_err(PairError::Sockets)?;
            latencies.record(clock() - began);
        }
        Ok(latencies)
    }
}
