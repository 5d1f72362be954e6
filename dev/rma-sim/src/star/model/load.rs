//! The workloads of applications: those of StaR §V-A3 and §II-B1.

use super::{
    network::{Event, Network, Side},
    time::Picos,
};

/// Messages of a client that make a call (StaR §V-A3).
pub const MESSAGES: u32 = 3;

/// A workload. In each, every connection has one call under way, and the next one begins when its
/// answer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Three messages to the server, which answers with one.
    Rpc,
    /// The same, but the server answers all connections once it has the messages of all.
    Ml,
    /// The server reads from the client.
    Read,
}

/// The applications' wishes, and their results.
#[derive(Debug)]
pub struct Applications {
    workload: Workload,
    /// From a completion until its application has posted what follows from it.
    host: Picos,
    /// Calls that each connection makes.
    calls: u32,
    made: Vec<u32>,
    begun: Vec<Picos>,
    /// Messages of the call under way that the server has.
    messages: Vec<u32>,
    complete: usize,
    /// Calls that have ended, and the time that all of them took.
    pub done: u64,
    /// That time.
    pub took: Picos,
}

impl Applications {
    /// Applications that begin `calls` calls on each of so many connections, the first ones now.
    #[must_use]
    pub fn new(
        workload: Workload,
        host: Picos,
        (connections, calls): (u32, u32),
        network: &mut Network,
    ) -> Self {
        let connections = connections as usize;
        let mut it = Self {
            workload,
            host,
            calls,
            made: vec![0; connections],
            begun: vec![Picos::ZERO; connections],
            messages: vec![0; connections],
            complete: 0,
            done: 0,
            took: Picos::ZERO,
        };
        for connection in 0..connections {
            it.begin(network, connection as u32, Picos::ZERO);
        }
        it
    }

    /// A side has got a message, or what it asked for.
    pub fn got(&mut self, network: &mut Network, side: Side, connection: u32) {
        match (side, self.workload) {
            (Side::Client, _) | (Side::Server, Workload::Read) => {
                self.done += 1;
                self.took += network.now() - self.begun[connection as usize];
                self.begin(network, connection, self.host);
            }
            (Side::Server, Workload::Rpc | Workload::Ml) => {
                let messages = &mut self.messages[connection as usize];
                *messages += 1;
                if *messages == MESSAGES {
                    *messages = 0;
                    self.answer(network, connection);
                }
            }
        }
    }

    fn answer(&mut self, network: &mut Network, connection: u32) {
        let at = network.now() + self.host;
        if self.workload == Workload::Rpc {
            network.at(at, Event::Posts(Side::Server, connection));
            return;
        }
        self.complete += 1;
        if self.complete == self.messages.len() {
            self.complete = 0;
            for connection in 0..self.messages.len() {
                network.at(at, Event::Posts(Side::Server, connection as u32));
            }
        }
    }

    /// Begins the next call, if there is one, after `wait`.
    fn begin(&mut self, network: &mut Network, connection: u32, wait: Picos) {
        let made = &mut self.made[connection as usize];
        if *made == self.calls {
            return;
        }
        *made += 1;
        let side = match self.workload {
            Workload::Rpc | Workload::Ml => Side::Client,
            Workload::Read => Side::Server,
        };
        self.begun[connection as usize] = network.now() + wait;
        network.at(network.now() + wait, Event::Posts(side, connection));
    }
}
