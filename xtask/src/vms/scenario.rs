//! The scenario of two machines and a UDP host.
//!
//! The first reads and writes the second over IPv4, while the second's server is killed and started
//! again, stopped and flooded, its link goes down and up, and the first's cable is pulled and put
//! back; then the second the first over IPv6; then each of them and this computer, over kernel UDP
//! sockets, one another.
//! The client is `rma-bench verify`: it compares every byte with a model and rotates the region's
//! key in each of its rounds. Its lines decide; a line that does not come is a failure.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};

use super::{
    error::Trouble,
    hosts::{Host, SERVE, VERIFY},
    machine::{INTERFACE, Machine},
    matrix::Row,
    network::Network,
};

/// The last parts of everybody's addresses.
pub(super) const A: u8 = 1;
pub(super) const B: u8 = 2;
pub(super) const HERE: u8 = 9;

/// An address of a host, and of its family.
fn address(host: u8, ipv6: bool) -> String {
    if ipv6 { format!("fd00::{host}") } else { format!("192.0.2.{host}") }
}

/// Both addresses of a host, as `ip` takes them.
pub(super) fn addresses(host: u8) -> [String; 2] {
    [format!("{}/24", address(host, false)), format!("{}/64", address(host, true))]
}

/// The port of 1RMA.
const PORT: u16 = 10472;

/// Datagrams that go to a process which takes none, and how many at once: more than the rings and
/// chunks of its host hold, in steps that no queue on the way is too short for.
const FLOOD: u32 = 3000;
const FLOOD_STEP: u32 = 100;

/// Bytes of each served region: small, as all of it is read back after each round.
const REGION_LEN: &str = "131072";

/// Ops of a round. More: a slower matrix. Fewer: they do not overlap with a rotation.
const OPS: &str = "200";

/// How long a client goes on without success, in seconds: longer than any silence that is borne
/// here, which is what decides.
const PATIENCE: &str = "600";

/// Rounds of a client to whose server nothing happens.
const ROUNDS: &str = "2";

/// Events that may come while another is awaited. A link that does not go down gives round after
/// round.
const EVENTS_MAX: usize = 50;

/// The events of `rma-bench verify --json`.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case", deny_unknown_fields)]
enum Event {
    Open {
        device: String,
        fallbacks: Vec<String>,
    },
    Round {
        round: u64,
        reads: u64,
        writes: u64,
        bytes: u64,
        compared: u64,
        rekeys: u64,
    },
    Failing {
        status: String,
        failures: u64,
    },
    Answered {},
    Regranted {
        region: Found,
    },
    /// Of a client whose server gives lanes; those here have grant files.
    Lane(IgnoredAny),
    /// The totals so far, which its end says again.
    Verified(IgnoredAny),
    Restoring {},
    End(Totals),
}

/// The content that a region had under a new grant.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Found {
    Kept,
    Fresh,
}

/// The totals of a client.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Totals {
    pub(super) rounds: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) bytes: u64,
    pub(super) compared: u64,
    pub(super) rekeys: u64,
    pub(super) regrants: u64,
    pub(super) failed: BTreeMap<String, u64>,
    /// Whether the region holds what it did before. Of the client's end alone.
    #[serde(default)]
    pub(super) restored: bool,
    /// The bytes that were written to. Likewise.
    #[serde(default, rename = "area")]
    pub(super) _area: IgnoredAny,
}

/// The observations of a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// Sentences of the hosts about what works less well than it could.
    pub(super) fallbacks: Vec<String>,
    pub(super) ipv4: Totals,
    pub(super) ipv6: Totals,
    /// This computer serves, the first machine reads and writes.
    pub(super) of_udp: Totals,
    /// The second machine serves, this computer reads and writes.
    pub(super) by_udp: Totals,
}

/// The device that a host is told to open.
fn device(host: u8, ipv6: bool, row: &Row) -> Vec<String> {
    let here = address(HERE, ipv6);
    let device: &[&str] = match host {
        HERE => &["--udp", &here],
        _ if row.asked_for => &["--interface", INTERFACE, "--backend", "xdp-zc"],
        _ => &["--interface", INTERFACE],
    };
    device.iter().map(|&text| text.to_owned()).collect()
}

/// Goes through all of it. The row says how the machines must open their devices.
pub(super) fn run(
    a: &mut Machine,
    b: &mut Machine,
    here: &mut dyn Host,
    network: &Network,
    row: &Row,
) -> Result<Shown, Trouble> {
    let mut shown = Shown::default();

    progress("the first machine reads and writes the second, over IPv4");
    let fallbacks = serve(b, B, A, false, row)?.check(b, row)?;
    verify(a, b, (A, false), row, None)?;
    let ours = opened(a)?.check(a, row)?;
    shown.fallbacks = fallbacks;
    shown.fallbacks.extend(ours);
    shown.fallbacks.sort_unstable();
    shown.fallbacks.dedup();
    rounds(a, 2)?;
    progress("the server is killed and started again");
    b.signal(SERVE, "KILL")?;
    ended(b, SERVE, "137")?;
    failing(a)?;
    start_again(a, b, row)?;
    progress("the server is stopped, and its port flooded");
    b.signal(SERVE, "STOP")?;
    failing(a)?;
    flood(network, b)?;
    b.signal(SERVE, "CONT")?;
    answered(a)?;
    progress("the server's link is set down and up");
    b.set_link(false)?;
    failing(a)?;
    b.set_link(true)?;
    if row.forgets_its_program() {
        stop(b)?;
        start_again(a, b, row)?;
    } else {
        answered(a)?;
    }
    progress("the client's cable is pulled and put back");
    a.set_cable(false)?;
    failing(a)?;
    a.set_cable(true)?;
    answered(a)?;
    a.signal(VERIFY, "TERM")?;
    shown.ipv4 = end(a)?;
    stop(b)?;
    if shown.ipv4.regrants != 1 + u64::from(row.forgets_its_program()) {
        return Err(unexpected(a, "a new grant for each new server", &shown.ipv4));
    }

    progress("the second machine reads and writes the first, over IPv6");
    serve(a, A, B, true, row)?.check(a, row)?;
    verify(b, a, (B, true), row, Some(ROUNDS))?;
    opened(b)?.check(b, row)?;
    shown.ipv6 = end(b)?;
    stop(a)?;

    progress("the first machine reads and writes a UDP host, over IPv4");
    serve(here, HERE, A, false, row)?;
    verify(a, here, (A, false), row, Some(ROUNDS))?;
    opened(a)?.check(a, row)?;
    shown.of_udp = end(a)?;
    stop(here)?;

    progress("a UDP host reads and writes the second machine, over IPv6");
    serve(b, B, HERE, true, row)?.check(b, row)?;
    verify(here, b, (HERE, true), row, Some(ROUNDS))?;
    opened(here)?;
    shown.by_udp = end(here)?;
    stop(b)?;
    Ok(shown)
}

/// Starts the server again, and waits until the client has looked at a fresh region and gone on for
/// a round.
fn start_again(a: &mut Machine, b: &mut Machine, row: &Row) -> Result<(), Trouble> {
    serve(b, B, A, false, row)?.check(b, row)?;
    let grant = b.grant()?;
    a.put_grant(&grant)?;
    let event = wait(a, "a look at the fresh region", |e| matches!(e, Event::Regranted { .. }))?;
    if !matches!(event, Event::Regranted { region: Found::Fresh }) {
        return Err(unexpected(a, "the pattern of a fresh region", &event));
    }
    rounds(a, 1)
}

/// Sends to the port of a machine whose process takes nothing, over IPv4. The machine itself must
/// not notice.
fn flood(network: &Network, machine: &Machine) -> Result<(), Trouble> {
    let to = address(B, false).parse().expect("made above");
    for sent in (FLOOD_STEP..=FLOOD).step_by(FLOOD_STEP as usize) {
        network.flood(to, PORT, FLOOD_STEP)?;
        if !network.is_answered(to)? {
            return Err(Trouble::Unexpected {
                host: machine.name(),
                expected: "an answer to a ping".into(),
                came: format!("none, after {sent} datagrams to a process that is stopped"),
            });
        }
    }
    Ok(())
}

/// Tries to open the machines' devices, which must be refused with a message that has `part` in it.
/// Gives the message.
pub(super) fn refused(a: &mut Machine, row: &Row, part: &str) -> Result<String, Trouble> {
    progress("the device is refused");
    match serve(a, A, B, false, row) {
        Err(Trouble::Exited { said, .. }) if said.contains(part) => {
            let message = said.lines().find(|line| line.contains(part)).unwrap_or_default();
            Ok(message.trim_start_matches("rma-bench: ").to_owned())
        }
        Err(trouble) => Err(trouble),
        Ok(opened) => Err(Trouble::Unexpected {
            host: a.name(),
            expected: format!("an error with {part:?}"),
            came: opened.device,
        }),
    }
}

fn progress(what: &str) {
    println!("  {what}");
}

/// The description of a host's device.
struct Opened {
    device: String,
    fallbacks: Vec<String>,
}

impl Opened {
    /// Gives the fallbacks if they and the device are those that should be.
    fn check(mut self, host: &dyn Host, row: &Row) -> Result<Vec<String>, Trouble> {
        let unexpected =
            |expected, came| Err(Trouble::Unexpected { host: host.name(), expected, came });
        if self.device != row.device() {
            return unexpected(row.device(), self.device);
        }
        self.fallbacks.sort_unstable();
        let expected = row.fallbacks();
        let mut pairs = self.fallbacks.iter().zip(expected);
        if self.fallbacks.len() != expected.len() || !pairs.all(|(it, begin)| it.starts_with(begin))
        {
            return unexpected(expected.join("; "), self.fallbacks.join("; "));
        }
        Ok(self.fallbacks)
    }
}

/// Starts a server and waits until it serves.
fn serve(
    host: &mut dyn Host,
    own: u8,
    initiator: u8,
    ipv6: bool,
    row: &Row,
) -> Result<Opened, Trouble> {
    let (initiator, grant) = (address(initiator, ipv6), host.grant_path());
    let mut arguments = device(own, ipv6, row);
    let others = [
        "--initiator",
        &initiator,
        "--op",
        "read,write,rekey",
        "--region-len",
        REGION_LEN,
        "--grant",
        &grant,
    ];
    arguments.extend(others.map(str::to_owned));
    host.start(SERVE, &arguments)?;
    let (mut device, mut fallbacks, mut said) = (String::new(), Vec::new(), Vec::new());
    loop {
        let line = host.line(SERVE)?;
        if let Some(status) = line.strip_prefix("exit-status ") {
            return Err(Trouble::Exited {
                host: host.name(),
                program: SERVE,
                status: status.to_owned(),
                said: said.join("\n"),
            });
        }
        let trimmed = line.trim_start();
        if let Some(text) = trimmed.strip_prefix("device ") {
            device = text.trim_start().to_owned();
        } else if let Some(text) = trimmed.strip_prefix("fallback ") {
            fallbacks.push(text.trim_start().to_owned());
        } else if trimmed.starts_with("stop ") {
            return Ok(Opened { device, fallbacks });
        }
        said.push(line);
    }
}

/// Carries the grant from the server to the client, and starts that.
fn verify(
    client: &mut dyn Host,
    server: &mut dyn Host,
    (own, ipv6): (u8, bool),
    row: &Row,
    rounds: Option<&str>,
) -> Result<(), Trouble> {
    let grant = server.grant()?;
    client.put_grant(&grant)?;
    let grant = client.grant_path();
    let mut others = vec!["--grant", &*grant, "--ops", OPS];
    others.extend(["--patience", PATIENCE, "--rekey", "--json"]);
    if let Some(rounds) = rounds {
        others.extend(["--rounds", rounds]);
    }
    let mut arguments = device(own, ipv6, row);
    arguments.extend(others.into_iter().map(str::to_owned));
    client.start(VERIFY, &arguments)
}

fn opened(client: &mut dyn Host) -> Result<Opened, Trouble> {
    match event(client)? {
        Event::Open { device, fallbacks } => Ok(Opened { device, fallbacks }),
        other => Err(unexpected(client, "the client's device", &other)),
    }
}

/// The client's next event. What is none is what it says before it ends.
fn event(client: &mut dyn Host) -> Result<Event, Trouble> {
    let mut said = Vec::new();
    loop {
        let line = client.line(VERIFY)?;
        if let Some(status) = line.strip_prefix("exit-status ") {
            return Err(Trouble::Exited {
                host: client.name(),
                program: VERIFY,
                status: status.to_owned(),
                said: said.join("\n"),
            });
        }
        match serde_json::from_str(&line) {
            Ok(event) if said.is_empty() => return Ok(event),
            // Nothing is said between an error and the end.
            Ok(_) => return Err(Trouble::Unknown { host: client.name(), line: said.join("\n") }),
            Err(_) => said.push(line),
        }
    }
}

/// Waits for an event. Rounds may end meanwhile, and a busy computer may look like a silent server.
fn wait(
    client: &mut dyn Host,
    what: &str,
    wanted: impl Fn(&Event) -> bool,
) -> Result<Event, Trouble> {
    for _ in 0..EVENTS_MAX {
        let event = event(client)?;
        if wanted(&event) {
            return Ok(event);
        }
        if matches!(event, Event::Open { .. } | Event::Regranted { .. } | Event::End(_)) {
            return Err(unexpected(client, what, &event));
        }
    }
    Err(unexpected(client, what, &format_args!("{EVENTS_MAX} other events")))
}

/// Waits for the ends of some rounds.
fn rounds(client: &mut dyn Host, count: u32) -> Result<(), Trouble> {
    for _ in 0..count {
        let event = wait(client, "the end of a round", |e| matches!(e, Event::Round { .. }))?;
        let Event::Round { round, reads, writes, bytes, compared, rekeys } = event else {
            continue;
        };
        if [round, reads, writes, bytes, compared, rekeys].contains(&0) {
            let what = "a round with reads, writes, a comparison and a rotation";
            return Err(unexpected(client, what, &event));
        }
    }
    Ok(())
}

/// Waits until op after op fails, from now on: on a busy computer they may have done so before.
fn failing(client: &mut Machine) -> Result<(), Trouble> {
    for line in client.said_until_now(VERIFY)? {
        if serde_json::from_str::<Event>(&line).is_err() {
            return Err(Trouble::Unknown { host: client.name(), line });
        }
    }
    let event = wait(client, "ops that fail", |e| matches!(e, Event::Failing { .. }))?;
    if let Event::Failing { status, failures } = event {
        progress(&format!("  {failures} ops in a row have ended with {status}"));
    }
    Ok(())
}

/// Waits until ops succeed again, and a whole round has.
fn answered(client: &mut dyn Host) -> Result<(), Trouble> {
    wait(client, "ops that succeed again", |e| matches!(e, Event::Answered {}))?;
    rounds(client, 1)
}

/// Waits for the client's end, and looks whether it has done what it should.
fn end(client: &mut dyn Host) -> Result<Totals, Trouble> {
    let event = wait(client, "the client's last words", |e| matches!(e, Event::End(_)))?;
    let Event::End(totals) = event else { return Err(unexpected(client, "its end", &event)) };
    ended(client, VERIFY, "0")?;
    if !totals.restored {
        return Err(unexpected(client, "what was there before restored", &totals));
    }
    let counts = [totals.rounds, totals.reads, totals.writes, totals.compared, totals.rekeys];
    if counts.contains(&0) {
        return Err(unexpected(
            client,
            "rounds, reads, writes, comparisons and rotations",
            &totals,
        ));
    }
    Ok(totals)
}

/// Ends a server as its administrator does.
fn stop(host: &mut dyn Host) -> Result<(), Trouble> {
    host.signal(SERVE, "TERM")?;
    ended(host, SERVE, "0")
}

/// Waits for the end of a program, with this status.
fn ended(host: &mut dyn Host, program: &'static str, wanted: &str) -> Result<(), Trouble> {
    let mut said = Vec::new();
    loop {
        let line = host.line(program)?;
        match line.strip_prefix("exit-status ") {
            Some(status) if status == wanted => return Ok(()),
            Some(status) => {
                return Err(Trouble::Exited {
                    host: host.name(),
                    program,
                    status: status.to_owned(),
                    said: said.join("\n"),
                });
            }
            None => said.push(line),
        }
    }
}

fn unexpected(host: &dyn Host, expected: &str, came: &dyn std::fmt::Debug) -> Trouble {
    Trouble::Unexpected {
        host: host.name(),
        expected: expected.to_owned(),
        came: format!("{came:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_those_of_the_client_and_no_others() {
        let read = |line: &str| serde_json::from_str::<Event>(line);
        assert!(matches!(read(r#"{"event":"answered"}"#), Ok(Event::Answered {})));
        let fresh = read(r#"{"event":"regranted","region":"fresh"}"#);
        assert!(matches!(fresh, Ok(Event::Regranted { region: Found::Fresh })));
        let totals = r#""rounds":1,"reads":2,"writes":3,"bytes":4,"compared":5,"rekeys":6,"regrants":0,"failed":{}"#;
        let verified = read(&format!(r#"{{"event":"verified",{totals}}}"#));
        assert!(matches!(verified, Ok(Event::Verified(_))), "{verified:?}");
        let end = read(&format!(r#"{{"event":"end",{totals},"restored":true,"area":[0,9]}}"#));
        assert!(matches!(end, Ok(Event::End(Totals { restored: true, .. }))), "{end:?}");
        for other in [
            "",
            "rma-bench: interrupted",
            r#"{"event":"failing","status":"TIMEOUT"}"#,
            r#"{"event":"answered","after_ms":3}"#,
            r#"{"event":"ended"}"#,
        ] {
            assert!(read(other).is_err(), "{other}");
        }
    }
}
