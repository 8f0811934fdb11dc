use crate::poller::Poller;
use crate::{Canceller, Completion, Output, Queue, Request, Result, Status};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// A request of async code, of any runtime ([`crate::Engine::generate_async`]). Dropping it cancels it.
///
/// Awaiting it gives the whole answer; [`AsyncRequest::next`] gives one output after the other, and
/// [`AsyncRequest::poll_next`] has the signature of `Stream::poll_next`.
///
/// ```
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/tiny/llama");
/// # let engine = orlop::Engine::open(model)?;
/// use orlop::Params;
/// orlop::block_on(async {
///     let params = Params::tokens([1, 2, 3]).max_tokens(5).ignore_eos(true);
///     let mut request = engine.generate_async(&params)?;
///     let mut tokens = Vec::new();
///     while let Some(output) = request.next().await {
///         tokens.extend(output?.tokens);
///     }
///     assert_eq!(tokens.len(), 5);
///     assert_eq!(engine.generate_async(&params)?.await?.tokens().len(), 5);
///     Ok::<(), orlop::Error>(())
/// })?;
/// # Ok::<(), orlop::Error>(())
/// ```
///
/// A task that waits for one request cannot read it elsewhere too:
///
/// ```compile_fail,E0499
/// async fn twice(mut request: orlop::AsyncRequest) {
///     let first = request.next();
///     let second = request.next();
///     first.await;
///     second.await;
/// }
/// ```
pub struct AsyncRequest {
    request: Request,
    poller: Arc<Poller>,
    tag: u64,
}

impl AsyncRequest {
    pub(crate) fn submit(
        poller: Arc<Poller>,
        f: impl FnOnce(&Queue, u64) -> Result<Request>,
    ) -> Result<AsyncRequest> {
        let tag = poller.add();
        match f(poller.queue(), tag) {
            Ok(request) => Ok(AsyncRequest { request, poller, tag }),
            Err(error) => {
                poller.remove(tag);
                Err(error)
            }
        }
    }

    /// The next output if there is one; else `cx`'s waker is called when there is. `Ready(None)`: the end.
    pub fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Output>>> {
        if let Some(item) = self.request.item(0) {
            return Poll::Ready(item);
        }
        // Watch first, look after: output that came between the two would wake nobody.
        self.poller.watch(self.tag, cx.waker());
        match self.request.item(0) {
            Some(item) => Poll::Ready(item),
            None => Poll::Pending,
        }
    }

    /// The next output; None: the end.
    #[allow(clippy::should_implement_trait)] // the name that every stream has for it
    pub fn next(&mut self) -> Next<'_> {
        Next(self)
    }

    /// The whole answer, or all of it that was not taken yet. A sample that failed is an error.
    pub fn result(self) -> Answer {
        Answer { request: self, whole: Completion::default() }
    }

    /// As [`Request::status`].
    pub fn status(&self) -> Result<Status> {
        self.request.status()
    }

    /// As [`Request::cancel`].
    pub fn cancel(&self) {
        self.request.cancel();
    }

    /// As [`Request::canceller`].
    pub fn canceller(&self) -> Canceller {
        self.request.canceller()
    }
}

impl Drop for AsyncRequest {
    fn drop(&mut self) {
        self.poller.remove(self.tag);
    }
}

impl std::fmt::Debug for AsyncRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AsyncRequest").field(&self.status()).finish()
    }
}

impl IntoFuture for AsyncRequest {
    type Output = Result<Completion>;
    type IntoFuture = Answer;
    fn into_future(self) -> Answer {
        self.result()
    }
}

/// The future of [`AsyncRequest::next`]. Dropping it loses nothing.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Next<'a>(&'a mut AsyncRequest);

impl Future for Next<'_> {
    type Output = Option<Result<Output>>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut *self.0).poll_next(cx)
    }
}

/// The future of [`AsyncRequest::result`]. Dropping it cancels the request.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Answer {
    request: AsyncRequest,
    whole: Completion,
}

impl Future for Answer {
    type Output = Result<Completion>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match Pin::new(&mut self.request).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(output))) => self.whole.add(output),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => {
                    let mut whole = std::mem::take(&mut self.whole);
                    whole.status = self.request.status()?;
                    return Poll::Ready(Ok(whole));
                }
            }
        }
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread: for programs without a runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
