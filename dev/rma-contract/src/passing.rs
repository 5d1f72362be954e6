//! Actions on a run that only a simulation permits: virtual time passes, and hosts crash.

use core::time::Duration;

use rma_sim::net::frame::NodeId;

use super::{
    hosts::{Driven as _, Hosts as _},
    run::Run,
    simulated::World,
};

impl Run<World> {
    /// Runs for so long.
    pub fn pass(&mut self, length: Duration) {
        let end = self.world.now() + length;
        self.look();
        while self.world.now() < end {
            self.news_at = self.steps;
            self.step();
        }
    }

    /// Whether a sender, or a receiver, has nothing more to do with this channel.
    pub fn is_broken(&self) -> bool {
        self.is_broken_but(None)
    }

    /// The same, but for one sender.
    pub fn is_broken_but(&self, but: Option<usize>) -> bool {
        let mut streams = self.streams.iter().enumerate();
        streams.any(|(index, stream)| Some(index) != but && stream.broken.is_some())
            || self.readers.iter().any(|reader| reader.ended.is_some())
    }

    /// A host crashes, and with it all ends that are there.
    pub fn crash(&mut self, node: NodeId) {
        self.world.network.crash(node);
        for stream in self.streams.iter_mut().filter(|stream| stream.node == node) {
            stream.end = None;
        }
        for reader in self.readers.iter_mut().filter(|reader| reader.node == node) {
            reader.held.clear();
            reader.end = None;
        }
    }

    /// A sender stops, dead or asleep for so long, with what it was lent; its receiver takes that
    /// back `after` that.
    pub fn take_back(&mut self, index: usize, asleep: Option<Duration>, after: Duration) {
        let node = self.streams[index].node;
        match asleep {
            Some(length) => drop(self.world.network.pause(node, length)),
            None => self.crash(node),
        }
        self.pass(after);
        while !self.world.is_running(self.readers[0].node) {
            self.step();
        }
        let (from, reader) = (self.world.peer(node), &mut self.readers[0]);
        let end = reader.end.as_mut().unwrap();
        end.take_back(&*self.world.gate(reader.node), from);
        self.look();
    }
}
