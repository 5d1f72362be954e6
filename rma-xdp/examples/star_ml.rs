//! Distributed training as in StaR's paper (§V): each worker sends its share of a gradient in three
//! SENDs of 32 bytes, and the server answers all workers once it has all shares. The server is the
//! stateless side.
//!
//! Everybody is here, over UDP on loopback; `star_rpc` shows how to connect two machines.

use std::{io::Read, os::unix::net::UnixStream, thread};

use rma_xdp::{
    Host, HostConfig,
    star::{
        Access, CqId, MemoryRegion, Qp, QpConfig, RecvWr, Role, SendWr, StarConfigBuilder,
        StarPortalConfig, StarVerbs, Wc, WcStatus,
    },
};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Numbers in a message: 32 bytes.
const NUMBERS: usize = 4;
/// Messages of each worker in a step.
const SHARES: u64 = 3;
const WORKERS: usize = 3;
const STEPS: u64 = 20;

/// Bytes of a message.
const LEN: u32 = 8 * NUMBERS as u32;

type Gradient = [f64; NUMBERS];

/// A host of its own for each, as on machines of their own.
fn open(last: u8) -> Result<Host, Error> {
    let config = HostConfig::udp([127, 0, 0, last]);
    Ok(Host::open(config.with(|it| it.star = Some(StarConfigBuilder::default())))?)
}

/// Queue pairs with a RECV for each message of a step, which names its place.
struct Side {
    verbs: StarVerbs,
    cq: CqId,
    mr: MemoryRegion,
    qps: Vec<Qp>,
}

impl Side {
    fn new(host: &Host, role: Role, count: usize) -> Result<Self, Error> {
        let mut verbs = host.verbs(StarPortalConfig::default())?;
        let pd = host.alloc_pd(&verbs)?;
        let places = count * (1 + SHARES as usize);
        let mr = host.reg_mr(&pd, places * LEN as usize, Access::LOCAL_WRITE)?;
        let cq = verbs.create_cq(2 * places as u32);
        let config = QpConfig { role, ..QpConfig::default() };
        let qps = (0..count).map(|_| verbs.create_qp(&pd, cq, cq, config));
        let qps = qps.collect::<Result<_, _>>()?;
        Ok(Self { verbs, cq, mr, qps })
    }

    /// Returns the place of a message that comes to a queue pair, or the one that it sends.
    const fn place(index: usize, share: Option<u64>) -> u64 {
        let which = match share {
            Some(share) => 1 + share,
            None => 0,
        };
        (index as u64 * (1 + SHARES) + which) * LEN as u64
    }

    fn recv(&mut self, index: usize, share: u64) -> Result<(), Error> {
        let sge = self.mr.slice(Self::place(index, Some(share)), LEN);
        let wr_id = index as u64 * SHARES + share;
        Ok(self.verbs.post_recv(self.qps[index], &RecvWr { wr_id, sge })?)
    }

    fn send(&mut self, index: usize, gradient: &Gradient) -> Result<(), Error> {
        let at = Self::place(index, None);
        let octets = gradient.map(f64::to_le_bytes);
        self.mr.write(at, octets.as_flattened())?;
        let sge = self.mr.slice(at, LEN);
        Ok(self.verbs.post_send(self.qps[index], &SendWr::send(0, sge).inline())?)
    }

    /// Waits until `recvs` messages have come and `sends` are with the peers. The sum of what came.
    fn complete(&mut self, mut recvs: u64, mut sends: u64) -> Result<Gradient, Error> {
        let (mut sum, mut wcs) = ([0.0; NUMBERS], [Wc::EMPTY; 16]);
        while recvs + sends > 0 {
            let count = self.verbs.wait_cq(self.cq, &mut wcs)?;
            for wc in &wcs[..count] {
                if wc.status != WcStatus::Success {
                    return Err(format!("a {:?} ended with {:?}", wc.opcode, wc.status).into());
                }
                if !wc.opcode.is_recv() {
                    sends -= 1;
                    continue;
                }
                recvs -= 1;
                let (index, share) = ((wc.wr_id / SHARES) as usize, wc.wr_id % SHARES);
                let mut octets = [[0; 8]; NUMBERS];
                self.mr.read(Self::place(index, Some(share)), octets.as_flattened_mut())?;
                for (sum, number) in sum.iter_mut().zip(octets) {
                    *sum += f64::from_le_bytes(number);
                }
            }
        }
        Ok(sum)
    }
}

fn server(host: &Host, mut secrets: Vec<UnixStream>) -> Result<(), Error> {
    let mut side = Side::new(host, Role::Stateless, secrets.len())?;
    for (index, secret) in secrets.iter_mut().enumerate() {
        side.verbs.accept_over(side.qps[index], secret)?;
    }
    for _ in 0..STEPS {
        for index in 0..secrets.len() {
            (0..SHARES).try_for_each(|share| side.recv(index, share))?;
        }
        let workers = secrets.len() as u64;
        let sum = side.complete(workers * SHARES, 0)?;
        (0..secrets.len()).try_for_each(|index| side.send(index, &sum))?;
        side.complete(0, workers)?;
    }
    // Workers are gone once they know that all is with the server.
    for secret in &mut secrets {
        let _ = secret.read(&mut [0])?;
    }
    Ok(())
}

fn worker(host: &Host, mut secret: UnixStream, number: usize) -> Result<(), Error> {
    let mut side = Side::new(host, Role::Stateful, 1)?;
    side.verbs.connect_over(side.qps[0], &mut secret)?;
    for step in 0..STEPS {
        side.recv(0, 0)?;
        let mut sum = [0.0; NUMBERS];
        for share in 0..SHARES {
            side.send(0, &[number as f64, step as f64, share as f64, 1.0])?;
            // Its place is the next one's; and after the last one there is an answer.
            sum = side.complete(u64::from(share + 1 == SHARES), 1)?;
        }
        let all = (WORKERS as u64 * SHARES) as f64;
        let of_numbers = (0..WORKERS).sum::<usize>() as f64 * SHARES as f64;
        let of_shares = (0..SHARES).sum::<u64>() as f64 * WORKERS as f64;
        let expected = [of_numbers, step as f64 * all, of_shares, all];
        assert_eq!(sum, expected);
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let host = open(113)?;
    // Channels that keep secrets and say who the peer is: over a network, TLS.
    let pairs = (0..WORKERS).map(|_| UnixStream::pair()).collect::<Result<Vec<_>, _>>()?;
    let (near, far): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let serving = thread::spawn(move || server(&host, far));
    let workers: Vec<_> = near
        .into_iter()
        .enumerate()
        .map(|(number, secret)| {
            thread::spawn(move || worker(&open(114 + number as u8)?, secret, number))
        })
        .collect();
    for thread in workers {
        thread.join().expect("workers go on to their end")?;
    }
    serving.join().expect("the server goes on to its end")?;
    println!("{WORKERS} workers agreed on {STEPS} sums");
    Ok(())
}
