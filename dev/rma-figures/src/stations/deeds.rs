//! The deeds of hosts: calls, messages, WRITEs, and RECVs that stay open. Completions are checked.

use rma_star::library::Remote;

use super::{Came, End, Passing, ROUNDS_MAX, Stations, application::Work};

/// Messages to Z in a call.
const REQUESTS: u8 = 3;

/// RECVs that are posted at once.
const RECVS: usize = 16;

impl<C: Passing> Stations<C> {
    /// A call on each of these connections, all at once.
    ///
    /// # Panics
    /// If one does not end well.
    pub fn calls(&mut self, connections: &[u32]) {
        for (which, &connection) in connections.iter().enumerate() {
            for _ in 0..REQUESTS {
                self.post(End::Z, connection, which, Work::Recv);
                self.post(End::F, connection, which, Work::Send);
            }
            self.post(End::F, connection, which, Work::Recv);
        }
        let mut requests = vec![0; connections.len()];
        // Each message completes at both its ends.
        let mut left = connections.len() * 2 * (usize::from(REQUESTS) + 1);
        for _ in 0..ROUNDS_MAX {
            for came in self.take_round(connections) {
                left -= 1;
                let Came { which, .. } = came;
                requests[which] += u8::from(came.is_message_to_z());
                if came.is_message_to_z() && requests[which] == REQUESTS {
                    self.post(End::Z, connections[which], which, Work::Send);
                }
            }
            if left == 0 {
                return;
            }
        }
        panic!("{left} completions of {} calls have not come", connections.len());
    }

    /// A message to Z on each of these connections, all at once. One may be there many times.
    ///
    /// # Panics
    /// As [`Stations::calls`].
    pub fn sends(&mut self, connections: &[u32]) {
        for (which, &connection) in connections.iter().enumerate() {
            self.post(End::Z, connection, which, Work::Recv);
            self.post(End::F, connection, which, Work::Send);
        }
        self.complete(connections, 2 * connections.len());
    }

    /// A WRITE to Z's memory on each of these connections, all at once.
    ///
    /// # Panics
    /// As [`Stations::calls`].
    pub fn writes(&mut self, connections: &[u32]) {
        for (which, &connection) in connections.iter().enumerate() {
            let [(portal, here), _] = self.place_of(connection);
            let remote = Remote { mr: self.z.applications[portal].mr(here).id(), offset: 0 };
            self.post(End::F, connection, which, Work::Write(remote));
        }
        self.complete(connections, connections.len());
    }

    /// A RECV of Z on each of these connections, which stays open.
    ///
    /// # Panics
    /// If one completes.
    pub fn open_recvs(&mut self, connections: &[u32]) {
        for some in connections.chunks(RECVS) {
            for (which, &connection) in some.iter().enumerate() {
                self.post(End::Z, connection, which, Work::Recv);
            }
            // They are told, and that is acknowledged.
            assert!((0..4).all(|_| self.take_round(some).is_empty()), "nobody has sent");
        }
    }

    fn complete(&mut self, connections: &[u32], mut left: usize) {
        for _ in 0..ROUNDS_MAX {
            left -= self.take_round(connections).len();
            if left == 0 {
                return;
            }
        }
        panic!("{left} completions have not come");
    }
}
