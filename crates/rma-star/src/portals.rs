//! The engine's ends of all portals, and whose application is to be woken.

use crate::{
    names::Qpn,
    portal::{Report, StarPort},
};

/// The portals of a host, by the numbers that are in QPNs.
#[derive(Debug)]
pub(crate) struct Portals {
    ports: Vec<Option<StarPort>>,
    /// Those that were given reports in this turn and whose application may sleep. Empty between
    /// turns.
    given: Vec<u16>,
}

impl Portals {
    /// No portals.
    pub(crate) fn new() -> Self {
        let most = Qpn::PORTALS as usize;
        Self { ports: Vec::with_capacity(most), given: Vec::with_capacity(most) }
    }

    /// Serves a portal from now on. Returns its number; `None` if there are as many as there can
    /// be.
    pub(crate) fn attach(&mut self, port: StarPort) -> Option<u16> {
        let free = self.ports.iter().position(Option::is_none);
        let number = free.unwrap_or(self.ports.len());
        if number >= Qpn::PORTALS as usize {
            return None;
        }
        if free.is_none() {
            self.ports.push(None);
        }
        self.ports[number] = Some(port);
        Some(number as u16)
    }

    /// Serves a portal no more.
    pub(crate) fn detach(&mut self, number: u16) -> Option<StarPort> {
        self.given.retain(|&given| given != number);
        self.ports.get_mut(usize::from(number))?.take()
    }

    /// How many numbers are in use, or have been: all that there are, are below.
    pub(crate) const fn len(&self) -> usize {
        self.ports.len()
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&StarPort> {
        self.ports.get(number as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut StarPort> {
        self.ports.get_mut(number as usize)?.as_mut()
    }

    /// All that there are, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &StarPort)> {
        (0..).zip(&self.ports).filter_map(|(number, port)| Some((number, port.as_ref()?)))
    }

    /// Reports to the application of a portal. `false` if it leaves no room for that: then it does
    /// not keep to the rules, and nothing was reported.
    #[inline]
    pub(crate) fn report(&mut self, number: u32, report: &Report) -> bool {
        let Some(port) = self.get_mut(number) else { return false };
        if !port.has_room_for(1) {
            return false;
        }
        if port.report(report) {
            self.given.push(number as u16);
        }
        true
    }

    /// Wakes those that were given something.
    pub(crate) fn wake_sleepers(&mut self) {
        while let Some(number) = self.given.pop() {
            if let Some(port) = self.get_mut(number.into()) {
                port.wake_sleeper();
            }
        }
    }
}
