//! Which endpoint a client gets.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::proxy::{Backend, Route};

/// Clients whose endpoint is remembered, at most; beyond that those that have been away longest are forgotten.
const REMEMBERED: usize = 16_384;

/// Chooses among the endpoints of one port: one after another, or, where the Service wants it so, the same for the
/// same client.
pub(crate) struct Balancer {
    route: RwLock<Arc<Route>>,
    next: AtomicUsize,
    sticky: Mutex<HashMap<IpAddr, (Backend, Instant)>>,
}

impl Balancer {
    pub(crate) fn new(route: Route) -> Self {
        Self { route: RwLock::new(Arc::new(route)), next: AtomicUsize::new(0), sticky: Mutex::default() }
    }

    /// From now on, this is where it leads.
    pub(crate) fn set(&self, route: &Route) {
        if **self.route.read() != *route {
            *self.route.write() = Arc::new(route.clone());
        }
    }

    /// Whether this is a place it leads to.
    pub(crate) fn has(&self, backend: &Backend) -> bool {
        self.route.read().backends.contains(backend)
    }

    /// The endpoints for a client, in the order in which they should be tried.
    pub(crate) fn order(&self, client: IpAddr) -> Vec<Backend> {
        let route = self.route.read().clone();
        let mut order = route.backends.clone();
        if order.is_empty() {
            return order;
        }
        let kept = route.affinity.and_then(|stay| {
            let sticky = self.sticky.lock();
            let (backend, last) = sticky.get(&client)?;
            let at = order.iter().position(|one| one == backend)?;
            (last.elapsed() < stay).then_some(at)
        });
        let first = kept.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed) % order.len());
        order.rotate_left(first);
        order
    }

    /// The client was given this one.
    pub(crate) fn chosen(&self, client: IpAddr, backend: &Backend) {
        let Some(stay) = self.route.read().affinity else { return };
        let mut sticky = self.sticky.lock();
        if sticky.len() >= REMEMBERED {
            sticky.retain(|_, (_, last)| last.elapsed() < stay);
        }
        if sticky.len() >= REMEMBERED
            && let Some(oldest) = sticky.iter().min_by_key(|(_, (_, last))| *last).map(|(client, _)| *client)
        {
            sticky.remove(&oldest);
        }
        sticky.insert(client, (backend.clone(), Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn backend(port: u16) -> Backend {
        Backend::Address(([127, 0, 0, 1], port).into())
    }

    fn first(balancer: &Balancer, client: [u8; 4]) -> Backend {
        let chosen = balancer.order(client.into()).remove(0);
        balancer.chosen(client.into(), &chosen);
        chosen
    }

    #[tokio::test(start_paused = true)]
    async fn endpoints_take_turns_and_a_client_stays_where_it_was_if_asked_to() {
        let route = |affinity| Route { backends: vec![backend(1), backend(2)], affinity };
        let balancer = Balancer::new(route(None));
        let turns = [1, 2, 1, 2].map(|_| first(&balancer, [10, 0, 0, 1]));
        assert_eq!(turns, [backend(1), backend(2), backend(1), backend(2)]);
        assert_eq!(balancer.order([10, 0, 0, 1].into()), [backend(1), backend(2)]);

        balancer.set(&route(Some(Duration::from_secs(10))));
        let mine = first(&balancer, [10, 0, 0, 1]);
        let other = first(&balancer, [10, 0, 0, 2]);
        assert_ne!(mine, other);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(first(&balancer, [10, 0, 0, 1]), mine);
        assert_eq!(first(&balancer, [10, 0, 0, 2]), other);
        // An endpoint that is gone keeps nobody.
        balancer.set(&Route { backends: vec![other.clone()], affinity: Some(Duration::from_secs(10)) });
        assert_eq!(first(&balancer, [10, 0, 0, 1]), other);
        balancer.set(&Route::default());
        assert!(balancer.order([10, 0, 0, 1].into()).is_empty());
    }
}
