// batch.cc MODEL [FILE]: many requests, one thread, one epoll loop.
//
//   c++ -std=c++17 batch.cc $(pkg-config --cflags --libs orlop) -o batch
//   ./batch model.gguf prompts.txt       (a prompt a line, of the file or stdin; none: a few of its own)
//
// All requests report to one completion queue. Its descriptor sits in the program's own epoll set,
// beside whatever else the program waits for: here a timer that shows how far things are.
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <orlop/orlop.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Job {
  std::string prompt, answer;
  orlop::Request request;
};

// Takes what the queue tells of, without waiting. How many jobs ended.
std::size_t collect(const orlop::Queue& queue, std::vector<Job>& jobs) {
  std::size_t ended = 0;
  while (const auto tag = queue.wait(orlop::Microseconds(0)).value()) {
    Job& job = jobs[*tag];
    orlop::Output out;
    if (job.request.get(out, orlop::Microseconds(0)).value() != orlop::Got::output) continue;
    job.answer += out.text();
    if (!out.last()) continue;
    if (out.finish_reason() == ORLOP_FINISH_ERROR) job.answer += " [" + out.error().message + "]";
    job.request.close();  // its memory goes back now
    ++ended;
  }
  return ended;
}

void watch(int set, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  if (epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event)) throw std::runtime_error("epoll_ctl");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: batch MODEL [FILE]\n";
    return 2;
  }
  std::vector<Job> jobs;
  std::ifstream file(argc == 3 ? argv[2] : "");
  std::istream& lines = argc == 3 ? static_cast<std::istream&>(file) : std::cin;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) jobs.push_back({line, "", {}});
  if (jobs.empty())
    for (const char* city : {"Paris", "Oslo", "Lima", "Cairo"})
      jobs.push_back({std::string("In which country lies ") + city + "?", "", {}});

  const orlop::Engine engine = orlop::Engine::open(argv[1]).value();
  const orlop::Queue queue = engine.queue().value();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    orlop::Params params = orlop::Params::chat(jobs[i].prompt);
    params.max_tokens = 48;
    params.temperature = 0;
    params.queue = &queue;
    params.tag = i;
    jobs[i].request = engine.generate(params).value();
  }

  const int set = epoll_create1(EPOLL_CLOEXEC);
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  const itimerspec each_second{{1, 0}, {1, 0}};
  if (set < 0 || timer < 0 || timerfd_settime(timer, 0, &each_second, nullptr))
    throw std::runtime_error("no epoll or no timer");
  watch(set, queue.fd());  // readable while a request has output; orlop's, never to be read
  watch(set, timer);

  std::size_t ended = 0;
  while (ended < jobs.size()) {
    epoll_event events[2];
    const int n = epoll_wait(set, events, 2, -1);
    for (int i = 0; i < n; ++i) {
      if (events[i].data.fd == queue.fd()) {
        ended += collect(queue, jobs);
      } else {
        std::uint64_t ticks = 0;
        if (read(timer, &ticks, sizeof ticks) == sizeof ticks)
          std::cerr << ended << " of " << jobs.size() << " answers\n";
      }
    }
  }
  close(timer);
  close(set);
  for (const Job& job : jobs) std::cout << "> " << job.prompt << '\n' << job.answer << "\n\n";
} catch (const std::exception& e) {  // orlop::Exception is one
  std::cerr << e.what() << '\n';
  return 1;
}
