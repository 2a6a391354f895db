"""Chinese texts of the help."""

from __future__ import annotations

HELP = {
    "* stands for any; none removes a limit.": "* 表示任意；none 取消配额。",
    "A comment, shown in the list.": "备注，显示在列表中。",
    "A deployment saved by `gpu-recovery login`; else GPU_RECOVERY_PROFILE.": "由 `gpu-recovery login` 保存的部署；默认取 GPU_RECOVERY_PROFILE。",
    "A document in JSON or YAML that replaces all limits.": "JSON 或 YAML 文件，替换全部配额。",
    (
        "A job waits until it is resumed, and keeps its position in the queue. A terminal asks for "
        "confirmation only for --all or several jobs."
    ): "作业等待恢复，并保留在队列中的位置。在终端上，仅对 --all 或多个作业要求确认。",
    "A page has at most --limit jobs. With --filter, the list is read until so many jobs match.": "每页最多 --limit 个作业。使用 --filter 时，会继续读取列表，直到找到这么多符合条件的作业。",
    "A terminal asks for confirmation before a sandbox is ended, a script does not.": "在终端上，结束沙箱前要求确认；脚本中不询问。",
    "A terminal asks for confirmation, a script does not.": "在终端上要求确认；脚本中不询问。",
    "A terminal asks for confirmation. A script is asked nothing; with --all it must give --yes.": "在终端上要求确认。脚本中不询问；使用 --all 时脚本必须给出 --yes。",
    "Address of the API; else GPU_RECOVERY_API_URL, else asked.": "API 的地址；默认取 GPU_RECOVERY_API_URL，没有则询问。",
    "Address of the API; else GPU_RECOVERY_API_URL.": "API 的地址；默认取 GPU_RECOVERY_API_URL。",
    "All pages.": "读取所有页。",
    "Also have the agents of its instances end its ranks.": "同时让实例上的 agent 结束作业的 rank。",
    (
        "An instance or a user may have two tokens at a time, so that the next can be installed before the last ends."
    ): "每个实例或用户可同时拥有两个令牌，便于在旧令牌到期前换上新令牌。",
    "Arguments": "参数",
    "By id; since: the latest change of status first; lemon: the least reliable first.": "按 id；since：状态最近变化的在前；lemon：最不可靠的在前。",
    "By time of submission, newest first if not given; status: the live jobs first. Page by page a job that changes its "
    "status meanwhile may then be missing or repeated: use --all.": "按提交时间，默认最新的在前；status：未结束的作业在前。这时逐页读取，期间改变状态的作业可能遗漏或"
    "重复：请使用 --all。",
    "Close the circuit breaker.": "闭合熔断器。",
    "Close the circuit breaker. Held repairs may begin. Old evidence is checked again first.": "闭合熔断器，被暂缓的修复可以开始。旧的证据会先重新检查。",
    "Commands": "命令",
    "Container whose exit code decides.": "以其退出码为准的容器。",
    "Continue after the page that showed this cursor.": "从给出该游标的那一页之后继续。",
    "Diagnose the dumps of PyTorch's flight recorder in this folder; needs no deployment.": "诊断该目录中 PyTorch flight recorder 的转储；无需部署。",
    "Diagnose the log of a rank or an instance; - is standard input.": "诊断某个 rank 或实例的日志；- 表示标准输入。",
    "Diagnose these reports, one JSON object per line; needs no deployment.": "诊断这些报告，每行一个 JSON 对象；无需部署。",
    "Do not ask for confirmation.": "不要求确认。",
    "Dumps are those of PyTorch's flight recorder. Files are diagnosed here, without a deployment.": "转储指 PyTorch flight recorder 的转储。文件在本机诊断，无需部署。",
    "ECS family, or family:revision.": "ECS 任务定义的 family，或 family:revision。",
    "Cancel jobs: their ranks are stopped, and the jobs end.": "取消作业：停止其 rank，作业结束。",
    "End the sandbox.": "结束沙箱。",
    "Every such job: your own, or as an operator of every user or of --user.": "所有这类作业：自己的作业；运维人员则为所有用户或 --user 的作业。",
    "Examples:": "示例：",
    "Explain the status of a job or an instance.": "说明作业或实例为何处于当前状态。",
    "Find the cause of a failure from reports, a log or dumps.": "根据报告、日志或转储查找故障原因。",
    "Folder of the checkpoints, as the ranks see it.": "检查点目录，以 rank 所见路径为准。",
    "Folder of the sandbox; else the sandbox found from here, or that of the repository.": "沙箱的目录；默认为从当前目录找到的沙箱，或仓库中的沙箱。",
    "For a day the same key creates no second job. Without the option each call has a new key.": "一天之内，同一个键不会创建第二个作业。不给出时，每次调用使用新的键。",
    (
        "For a queued job: the wait reason, the position, the jobs before it, the earliest start. For "
        "every job: each decision on it and on its instances, with its reason. For an instance: its "
        "decisions, with their reasons."
    ): "对排队的作业：等待原因、位置、排在前面的作业、最早开始时间。对所有作业：关于作业及其实例的每个决定及原因。对实例：关于它的决定及原因。",
    "Group of instances that the job may run on.": "作业可以使用的实例组。",
    "Have jobs save their state and release their instances.": "让作业保存状态并释放实例。",
    "Id or name of a job whose attempt failed.": "尝试失败的作业的 id 或名称。",
    "Id or name of a job, or id of an instance.": "作业的 id 或名称，或实例的 id。",
    "Id of the instance.": "实例的 id。",
    "Id or name of the job.": "作业的 id 或名称。",
    "Id of the token, as listed; not the token itself.": "令牌的 id，见列表；不是令牌本身。",
    "Ids of instances.": "实例的 id。",
    "Ids or names of jobs.": "作业的 id 或名称。",
    (
        "In a log, the cause is the `root` line that explains how the log ends, by time and by kind. A "
        "`cascade` line is a consequence of another error: it counts only if no `root` line explains the "
        "end. A `warning` never counts, because the program continued after it."
    ): (
        "在日志中，原因是能按时间和种类解释日志如何结束的 `root` 行。`cascade` 行是其他错误的后果：只有在没有 `root` 行能解释时才算。`warning` 行不算，"
        "因为程序在其后继续运行。"
    ),
    (
        "In the order of the queue: the position, the wait reason, the earliest start; then running "
        "jobs, totals by priority, and quotas as used/total."
    ): "按队列顺序：位置、等待原因、最早开始时间；然后是运行中的作业、各优先级合计，以及配额（已用/总数）。",
    "Install completion for the current shell.": "为当前 shell 安装补全。",
    "Issue a token for an instance or a user.": "为实例或用户签发令牌。",
    "Issue a token for an instance or a user. The token is shown only once.": "为实例或用户签发令牌。令牌只显示一次。",
    "Issue, list and revoke the tokens of instances and of users.": "签发、列出和吊销实例与用户的令牌。",
    "Jobs": "作业",
    "Jobs per page.": "每页的作业数。",
    "Kind of the fault.": "故障的种类。",
    "LOW to EXTREME_HIGH; NORMAL if not given.": "LOW 至 EXTREME_HIGH；默认为 NORMAL。",
    "Language of the output; else GPU_RECOVERY_LANGUAGE.": "输出的语言；默认取 GPU_RECOVERY_LANGUAGE。",
    "Language of the report; else that of the command line.": "报告的语言；默认与命令行相同。",
    "Largest number of counted attempts.": "计数尝试的最大次数。",
    "Largest number of messages.": "消息的最大条数。",
    "Let no repair begin until `unpause`.": "在 `unpause` 之前不开始任何修复。",
    "Let no repair begin until `unpause`. Repairs that EC2 has begun continue.": "在 `unpause` 之前不开始任何修复。EC2 已经开始的修复继续进行。",
    "Let repairs begin again.": "允许修复重新开始。",
    "Lifetime of the token, such as 90d or 12h.": "令牌的有效期，例如 90d 或 12h。",
    "List jobs, the newest first.": "列出作业，最新的在前。",
    "List the instances, or show one.": "列出实例，或显示一个实例。",
    "List the tokens of an instance or of a user, without the secrets.": "列出实例或用户的令牌，不含密文。",
    "Machines": "机器",
    "Make an instance of the sandbox fail.": "让沙箱中的一个实例出现故障。",
    "Name of the deployment.": "部署的名称。",
    "Name of the kind of work; the id of the job begins with it.": "工作类型的名称；作业 id 以它开头。",
    "Number of GPU instances.": "GPU 实例的数量。",
    "Number of GPUs on each instance.": "每个实例的 GPU 数量。",
    "Number of instances, or MIN..MAX of an elastic job.": "实例的数量；弹性作业写 MIN..MAX。",
    "Number of lines from the end.": "从末尾算起的行数。",
    "Number of the attempt; else the latest.": "尝试的编号；默认为最近一次。",
    "On Ray: shell command of the driver.": "在 Ray 上：driver 的 shell 命令。",
    "On this machine": "本机",
    "One instance, with its history.": "一个实例及其历史。",
    "Only instances of the job with this id or name.": "只列出此 id 或名称的作业所用的实例。",
    "Only instances of this status, such as AVAILABLE; several with commas.": "只显示该状态的实例，例如 AVAILABLE；多个状态用逗号分隔。",
    "Only jobs of this group of instances.": "只显示该实例组的作业。",
    "Only jobs of this status, such as RUNNING. May repeat.": "只显示该状态的作业，例如 RUNNING。可重复给出。",
    "Only jobs of this user.": "只显示该用户的作业。",
    "Only jobs submitted in the last 2h, or since a time in UTC.": "只显示最近一段时间（如 2h）或某 UTC 时间之后提交的作业。",
    "Only jobs that wait, that hold instances, or that have ended.": "只显示等待中、占用实例或已结束的作业。",
    "Only jobs whose id begins with this text.": "只显示 id 以该文本开头的作业。",
    "Only list the saved deployments.": "只列出已保存的部署。",
    "Only print an example of FILE, with comments; with --backend ray for Ray.": "只打印 FILE 的示例，带注释；加 --backend ray 则为 Ray 的示例。",
    (
        "Only records with this value, in which * stands for any text; != for other values, ~ for a "
        "part. May repeat. The fields are those of --json."
    ): "只显示字段为该值的记录，其中 * 表示任意文本；!= 表示其他值，~ 表示包含。可重复给出。字段与 --json 相同。",
    "Only say whether the job would start, where, and if not, why not.": "只说明作业能否开始、在哪里开始；不能则说明原因。",
    "Only show what the queues hold.": "只显示队列中的内容。",
    "Only this queue.": "只处理该队列。",
    "Open the page in a browser.": "在浏览器中打开页面。",
    "Open the web console, and print a session to paste there.": "打开 Web 控制台，并打印供粘贴的会话。",
    "Options": "选项",
    "People and limits": "用户与配额",
    "Preset of the recovery policy.": "恢复策略的预设。",
    "Print new lines until the job ends.": "持续打印新行，直到作业结束。",
    "Print the answer of the API as JSON; short for -o json.": "以 JSON 打印 API 的响应；等同于 -o json。",
    "Print the log of a rank.": "打印某个 rank 的日志。",
    "Print the version and exit.": "打印版本并退出。",
    "Queue suspended jobs again at their former positions.": "让挂起的作业回到队列中原来的位置。",
    (
        "Queue suspended jobs again at their former positions. A command runs from its start, on its last checkpoint."
    ): "让挂起的作业回到队列中原来的位置。命令会重新执行，并使用最近的检查点。",
    "Rank whose log is printed. Rank 0 receives the notices of suspension.": "要打印其日志的 rank。挂起通知由 rank 0 接收。",
    "Reaction of the instance to a reboot.": "实例对重启的反应。",
    "Remove a saved deployment and its token.": "删除已保存的部署及其令牌。",
    (
        "Remove a saved deployment and its token. The token itself stays valid: `gpu-recovery token revoke` ends it."
    ): "删除已保存的部署及其令牌。令牌本身仍然有效：用 `gpu-recovery token revoke` 吊销。",
    "Repair that ends a GPU fault.": "能消除 GPU 故障的修复方式。",
    "Return instances to use: each must pass a health check.": "让实例重新投入使用：每个实例必须先通过健康检查。",
    "Revoke a token: within a minute every API rejects it.": "吊销令牌：一分钟之内所有 API 都会拒绝它。",
    "Role of the session, at most that of your token, which is the default.": "会话的角色，不高于令牌的角色；默认与令牌相同。",
    "Run a Ray head too, for jobs with `--backend ray`.": "同时运行 Ray head，供 `--backend ray` 的作业使用。",
    "Run a node agent on each instance.": "在每个实例上运行节点代理。",
    "Run a whole deployment on this machine.": "在本机运行一套完整的部署。",
    "Run the product under a virtual clock.": "用虚拟时钟运行本产品。",
    (
        "Run the product under a virtual clock. Its verbs are run, play, explore, goodput, contract, queue. See --help."
    ): "用虚拟时钟运行本产品。子命令有 run、play、explore、goodput、contract 和 queue。见 --help。",
    "Running jobs at once, of all users; none for no limit.": "所有用户同时运行的作业数；none 表示不限。",
    "Running jobs at once, of each user; none for no limit.": "每个用户同时运行的作业数；none 表示不限。",
    (
        "Running jobs continue; no new job is placed on the instances. A terminal asks for confirmation, "
        "a script does not."
    ): "运行中的作业继续；不再向这些实例分配新作业。在终端上要求确认；脚本中不询问。",
    "Save a deployment and its token under a name.": "以一个名称保存部署及其令牌。",
    "Seconds that an attempt may run. With a limit, the job may start before larger jobs.": "一次尝试最多运行的秒数。有上限时，作业可能先于更大的作业开始。",
    (
        "Recovery contract: largest number of minutes from a failure to the next training step. "
        "Operators are notified if it is exceeded."
    ): "恢复约定：从故障到下一个训练步最多的分钟数。超过时通知运维人员。",
    "Recovery contract: largest number of minutes that an incident may cost: downtime plus repeated work.": (
        "恢复约定：一次事故最多可以损失的分钟数，即停机时间加上重做的工作。"
    ),
    "The program reports progress, for what the recovery contract expects.": "程序上报进度，用于估算恢复约定。",
    "Seconds between two checkpoints of the program, for what the recovery contract expects.": (
        "程序两次检查点之间的秒数，用于估算恢复约定。"
    ),
    "Seconds without progress after which the job counts as hung. The deployment decides without it.": (
        "没有进展多少秒之后，作业视为挂死。不设置时由部署决定。"
    ),
    "Seconds that rank 0 has to save its state when the job is suspended.": "作业被挂起时，rank 0 保存状态的秒数。",
    "Send dead letters to their functions again.": "把死信重新发送给对应的函数。",
    "Send dead letters to their functions again. Remove the cause first.": "把死信重新发送给对应的函数。请先排除原因。",
    "Set limits; limits that are not named stay.": "设置配额；未给出的配额不变。",
    (
        "Set limits; limits that are not named stay. Refused if another caller changes them at the same time."
    ): "设置配额；未给出的配额不变。若同时有其他调用者修改，则拒绝。",
    "Show and set how many instances each user may use at once.": "显示和设置每个用户可同时使用的实例数。",
    "Show completion for the current shell, to copy it or customize the installation.": "显示当前 shell 的补全脚本，供复制或自行安装。",
    "Show every e-mail that the operators have received.": "显示运维人员收到的每封邮件。",
    "Show one job: its status, the reason, and its attempts.": "显示一个作业：状态、原因和各次尝试。",
    "Show the fleet limits: repair budget, circuit breaker, pause.": "显示机群限制：修复预算、熔断器、暂停。",
    "Show the limits as they are set, and their usage.": "显示所设的配额及其使用情况。",
    "Show this message and exit.": "显示本帮助并退出。",
    "Show waiting jobs with their wait reasons, and running jobs.": "显示等待中的作业及其原因，以及运行中的作业。",
    "Show whether the sandbox runs; the exit code is 1 if it does not.": "显示沙箱是否在运行；未运行时退出码为 1。",
    (
        "Shows the instances under repair, the held repairs, and every other instance that gets no job, "
        "with their reasons."
    ): "显示修复中的实例、被暂缓的修复，以及其他不分配作业的实例和原因。",
    "Start a sandbox, deploy into it and leave it running.": "启动沙箱，完成部署并保持运行。",
    (
        "Start a sandbox, deploy into it and leave it running. A sandbox that already runs there is ended first."
    ): "启动沙箱，完成部署并保持运行。该处已在运行的沙箱会先被结束。",
    "Submit a training job.": "提交训练作业。",
    "Submit a training job. An option overrides the same field of FILE.": "提交训练作业。选项优先于 FILE 中的同名字段。",
    "Take instances out of use until they are released.": "停用实例，直到重新启用。",
    (
        "The JSON of a job has its view, `pending`, the views of its instances, and the ids that were left out."
    ): "作业的 JSON 包含作业视图、`pending`、其实例的视图，以及未列出的 id。",
    (
        "The exit code is 1 if any message stays in its queue, or if not all could be tried. A terminal "
        "asks for confirmation, a script does not."
    ): "若有消息留在队列中，或未能全部尝试，退出码为 1。在终端上要求确认；脚本中不询问。",
    "The job as JSON or YAML; - reads standard input.": "JSON 或 YAML 格式的作业；- 表示标准输入。",
    "The reason, which status and e-mails show.": "原因，显示在状态和邮件中。",
    "The same as FILE.": "与 FILE 相同。",
    "The session lives for at most 12 hours. It is never a part of the address, which histories keep.": "会话最长 12 小时。它不会出现在地址中，因为浏览器历史会保存地址。",
    (
        "The token comes from --token or its variable, else from the terminal, or in a script from "
        "standard input. One request checks it. It is stored in the keyring if the Python package "
        "`keyring` is installed, otherwise in a file that only you can read."
    ): (
        "令牌取自 --token 或其变量；否则在终端上输入，脚本中从标准输入读取。会用一次请求检查令牌。若已安装 Python 包 `keyring`，令牌保存在密钥环中，"
        "否则保存在只有您能读取的文件中。"
    ),
    "The user, for a token of a user.": "用户名，用于用户令牌。",
    "Train on Amazon ECS, with automatic recovery from GPU faults.": "在 Amazon ECS 上训练，并从 GPU 故障中自动恢复。",
    "Usage: ": "用法：",
    "Use this deployment if no other is selected. The first one is.": "未选择其他部署时使用此部署。第一个保存的部署即为默认。",
    "User of the job; only an operator may name another user.": "作业的用户；只有运维人员可以指定其他用户。",
    "Variable of every rank; may repeat.": "每个 rank 的环境变量；可重复给出。",
    "Wait until the job has ended.": "等待作业结束。",
    "Wait, and print the log of rank 0, across attempts.": "等待作业结束，并跨尝试打印 rank 0 的日志。",
    (
        "With --follow, the logs of later attempts follow, unless --attempt is given. The command ends "
        "when the job has ended. Ctrl-C stops the printing, not the job."
    ): "使用 --follow 时，会接着打印后续尝试的日志，除非给出了 --attempt。作业结束时命令结束。Ctrl-C 只停止打印，不停止作业。",
    (
        "With --wait or --follow, the exit code is 0 only if the job SUCCEEDED. Ctrl-C leaves the job running."
    ): "使用 --wait 或 --follow 时，只有作业为 SUCCEEDED 退出码才为 0。按 Ctrl-C 后作业继续运行。",
    "Your token; better in GPU_RECOVERY_TOKEN, because other users can see options.": "您的令牌；最好放在 GPU_RECOVERY_TOKEN 中，因为其他用户能看到选项。",
    "`token`, or `iam` to sign requests with AWS credentials; else GPU_RECOVERY_AUTH.": "`token`，或用 `iam` 以 AWS 凭证签名请求；默认取 GPU_RECOVERY_AUTH。",
    "ecs or ray.": "ecs 或 ray。",
    "Name of the job. Commands take it in place of the id; several jobs may have it.": "作业的名称。命令可用它代替 id；多个作业可以同名。",
    "Only jobs with this name.": "只列出此名称的作业。",
    "at least {least}": "至少 {least}",
    "default: {value}": "默认：{value}",
    "required": "必填",
    "{least} to {most}": "{least} 到 {most}",
    "iam: sign requests with AWS credentials, without a token.": "iam：用 AWS 凭证签名请求，不使用令牌。",
    "json or yaml: the answer of the API; wide: every column, no line folded; name: ids only.": "json 或 yaml：API 的响应；wide：全部列且不折行；name：只打印 id。",
    "viewer reads; user also submits, and controls own jobs; operator does everything.": "viewer 只读；user 还可提交作业并管理自己的作业；operator 可执行一切操作。",
    "AWS region; else that of the file or of AWS_REGION.": "AWS 区域；默认取文件中的区域或 AWS_REGION。",
    "AWS region; else that of the settings file or of AWS_REGION.": "AWS 区域；默认取设置文件中的区域或 AWS_REGION。",
    "Address to notify; may be repeated.": "接收通知的邮箱地址；可重复给出。",
    "Also run one health check on this idle instance, and wait for it.": "另外在这个空闲实例上运行一次健康检查，并等待结果。",
    "Any other setting; may be repeated.": "任意其他设置；可重复给出。",
    "Ask the AWS account, and write the settings file of one deployment.": "查询 AWS 账户，写出一个部署的设置文件。",
    "Deployment on AWS": "AWS 上的部署",
    "Deployment with the settings file settings/NAME.toml.": "设置文件为 settings/NAME.toml 的部署。",
    "ECS cluster with the GPU instances.": "含 GPU 实例的 ECS 集群。",
    "ECS cluster, if no settings file and no stack names it.": "ECS 集群；仅在设置文件和 CloudFormation 栈都没有给出时需要。",
    "Leave out a check; may be repeated.": "跳过一项检查；可重复给出。",
    "Longest wait for the health check, in seconds.": "等待健康检查的最长时间，单位秒。",
    "Say what would fail in the account or the deployment, and how to fix it.": "找出账户或部署中会出错的地方，并给出修复方法。",
    "Task definition family of training jobs; may be repeated.": "训练作业的任务定义 family；可重复给出。",
    "The account is only read. A terminal asks for each setting and proposes what the account has. A script gives options; what it leaves out is taken from the account. An existing file keeps its lines and comments: only changed settings are replaced, after the difference is shown and confirmed (--yes in a script).": "对账户只读取。在终端上逐项询问，并以账户中的内容作为建议值。脚本用选项给出设置，没有给出的从账户中取得。已有文件的其他行和注释保持不变：先显示差异，确认后只替换有变化的设置（脚本中用 --yes）。",
    "With NAME the settings are those of its file, before and after the deployment. Without NAME they are those of the deployment that is selected. AWS is read with your own credentials, and nothing is changed. Only --health-check takes the instance out of use while the check runs. Exit code 0: nothing would fail, and every check was made.": "给出 NAME 时，部署前后都使用其设置文件中的设置。不给出 NAME 时，使用所选部署的设置。用您自己的凭证读取 AWS，不做任何修改。只有 --health-check 会在检查期间停用该实例。退出码 0：没有会出错的地方，且所有检查都已完成。",
    "A setting of the policy to try.": "要试用的策略的一项设置。",
    "The whole policy to try, as JSON or TOML.": "要试用的完整策略，JSON 或 TOML。",
    "Collect the events since then, such as 30d or a date.": "收集此时以来的事件，例如 30d 或日期。",
    "Replay the records in this folder; the API is not called.": "重放此目录中的记录；不调用 API。",
    "Also save the collected records in this folder.": "同时把收集的记录保存到此目录。",
    (
        "Spare instances of each job. Default: those that the records show."
    ): "每个作业的备用实例数。默认：记录中出现的备用实例。",
    "Replay recorded incidents under another policy.": "在另一策略下重放记录的事故。",
    (
        "The production code decides again, in the simulator. First it replays the incidents under the recorded policy, "
        "as a control, and lists each incident that it does not decide as recorded. Nothing in the account is changed."
    ): (
        "生产代码在模拟器中重新作出决定。先在记录的策略下重放事故作为对照，并列出每个与记录的决定不一致的事故。"
        "账户中的任何内容都不会改变。"
    ),
}
"""Texts of the help by their English form."""
